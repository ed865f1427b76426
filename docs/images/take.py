"""Takes the pictures in this folder again: a run that waits, and the timeline of one with parallel calls.

    pip install playwright && python docs/images/take.py

Needs Chromium; CHROMIUM names its program where playwright has none of its own. Nothing is left running.
"""

import asyncio
import os
import runpy
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright
from temporalio.worker import Worker

from outlast.client import Client
from outlast.plugin import OutlastPlugin
from outlast.server import EmbeddedServer

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
REFUND = "Ada wants a refund of order 1042: the headphones are broken."
SEARCH = 'Search "vector index", 3 results; search "MCP"; and what is 1.2 + "3"?'


async def main() -> None:
    """Start the runs, look at them, and write the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REFUNDS_DB"] = str(Path(folder) / "refunds.db")
        for key in ("DEEPSEEK_API_KEY", "OPENAI_API_KEY"):
            os.environ.pop(key, None)
        agents = [
            runpy.run_path(str(EXAMPLES / "refunds.py"))["support"],
            runpy.run_path(str(EXAMPLES / "multi_tool.py"))["assistant"],
        ]
        async with EmbeddedServer(ui=True) as server:
            client = await Client.connect(server.address)
            async with Worker(client.temporal, task_queue="outlast", plugins=[OutlastPlugin(agents=agents)]):
                asked = {"requester": "ada@example.com"}
                refund = await client.start("support", REFUND, id="refund-1042", metadata=asked)
                while not await refund.pending():  # noqa: ASYNC110 -- only a query tells it
                    await asyncio.sleep(0.2)
                search = await client.start("assistant", SEARCH, id="search-1")
                await search.result()
                await take(server)


async def take(server: EmbeddedServer) -> None:
    """Look at both runs in Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1440, "height": 1480})
        page.set_default_timeout(60_000)
        await opened(page, server, "refund-1042", "User Metadata", "waits for an approval", framed=True)
        await page.screenshot(path=HERE / "waiting-run.png", clip={"x": 256, "y": 60, "width": 1184, "height": 1400})
        await opened(page, server, "search-1", "Timeline", "tool:search", framed=False)
        await page.screenshot(path=HERE / "timeline.png", clip={"x": 256, "y": 60, "width": 1184, "height": 920})
        await browser.close()


async def opened(page: Page, server: EmbeddedServer, run_id: str, tab: str, text: str, *, framed: bool) -> None:
    """Open a tab of a run's page, and wait until all of it is there."""
    await page.goto(str(server.run_url(run_id)))
    await page.get_by_role("tab", name=tab).first.click()
    await (page.frame_locator("iframe").last if framed else page).get_by_text(text).first.wait_for()
    # The tabs are still being counted: what is around the text moves once more.
    await page.wait_for_timeout(2_000)


asyncio.run(main())
