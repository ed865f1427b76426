"""Asks about each call that waits, over all runs, as a chat bot would. Needs `temporalio`, and nothing of outlast."""

import asyncio
import getpass

from temporalio.client import Client
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.exceptions import TemporalError


async def main() -> None:
    config: ClientConnectConfig = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    client = await Client.connect(**config)
    async for found in client.list_workflows("WorkflowType = 'AgentRun' AND ExecutionStatus = 'Running'"):
        waiting = (await found.memo()).get("outlast", {}).get("count")  # So that only runs that wait are asked.
        run = client.get_workflow_handle(found.id)
        for call in await run.query("pending") if waiting else []:
            print(f"{run.id}: {call.get('prompt') or call['kind']}\n  {call['tool_name']} {call['args']}")
            said = (await asyncio.to_thread(input, "  y, n, or what to tell the model instead: ")).strip()
            more = {"digest": call["digest"]} if said == "y" else {"message": said} if len(said) > 1 else {}
            decision = {"tool_call_id": call["tool_call_id"], "by": getpass.getuser(), **more}
            try:
                print(f"  {(await run.execute_update('approve' if said == 'y' else 'deny', decision))['state']}")
            except TemporalError as error:  # Somebody else was first, or the run has ended.
                print(f"  {error.__cause__ or error}")
    print("Nothing else waits.")


asyncio.run(main())
