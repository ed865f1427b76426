"""A support agent that finds orders by itself, and refunds them once a person agrees.

    outlast worker examples/refunds.py
    outlast run support "Ada wants a refund of order 1042: the headphones are broken."

With DEEPSEEK_API_KEY or OPENAI_API_KEY in the environment or in `.env`, a real model answers; without, fixed rules do.
"""

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from outlast import Agent, Approval, ModelRetry, OfflineModel, RunContext
from outlast.models.offline import Conversation, Prompt, call

offline = OfflineModel()
live = {"DEEPSEEK_API_KEY": "deepseek:deepseek-chat", "OPENAI_API_KEY": "openai:gpt-4o-mini"}
model = next((name for key, name in live.items() if os.environ.get(key)), offline)

support = Agent(model, name="support", instructions="You help a shop's customers. Find an order before you refund it.")


@support.tool_plain
def find_orders(customer: str) -> list[dict[str, Any]]:
    """Find all orders of a customer, with what was refunded so far.

    Args:
        customer: First name.
    """
    with database() as db:
        return [dict(order) for order in db.execute(f"{ORDERS} WHERE customer = ? COLLATE NOCASE", [customer])]


# By default a call that needs an approval is never repeated by itself. This one may be: the database knows its key.
@support.tool(approval=Approval(prompt="Refund {cents} cents of order {order_id}?"), repeatable=True)
def refund(ctx: RunContext, order_id: int, cents: int) -> str:
    """Pay a customer back.

    Args:
        order_id: Number of the order.
        cents: How much, at most what was paid.
    """
    with database() as db:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("SELECT 1 FROM refunds WHERE key = ?", [ctx.idempotency_key]).fetchone():
            return f"Refunded {cents} cents of order {order_id}, at an earlier attempt. Nothing was paid twice."
        order = db.execute(f"{ORDERS} WHERE order_id = ?", [order_id]).fetchone()
        if order is None or not 0 < cents <= order["cents"] - order["refunded"]:
            raise ModelRetry(f"Order {order_id} has no {cents} cents left to refund. Look at the customer's orders.")
        db.execute("INSERT INTO refunds VALUES (?, ?, ?)", [ctx.idempotency_key, order_id, cents])
        return f"Refunded {cents} cents of order {order_id}."


@offline.rule(r"(?P<customer>\w+) wants a refund of order (?P<order_id>\d+)")
def refund_an_order(prompt: Prompt) -> Conversation:
    found = yield call("find_orders", customer=prompt["customer"])
    order = next((order for order in found.content if order["order_id"] == int(prompt["order_id"])), None)
    if order is None:
        return f"{prompt['customer']} has no order {prompt['order_id']}."
    done = yield call("refund", order_id=order["order_id"], cents=order["cents"])
    if not done.ok:
        return f"The {order['item']} cannot be refunded: {done.content}"
    return f"Sorry about the {order['item']}, {order['customer']}. {done.content}"


@offline.rule(r"orders of (?P<customer>\w+)")
def list_orders(prompt: Prompt) -> Conversation:
    found = yield call("find_orders", customer=prompt["customer"])
    return ", ".join(f"{order['order_id']} ({order['item']})" for order in found.content) or "There are none."


ORDERS = """
    SELECT *, (SELECT coalesce(sum(cents), 0) FROM refunds WHERE refunds.order_id = orders.order_id) AS refunded
    FROM orders
"""

SCHEMA = """
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS orders (order_id INTEGER PRIMARY KEY, customer TEXT, item TEXT, cents INTEGER);
    CREATE TABLE IF NOT EXISTS refunds (key TEXT PRIMARY KEY, order_id INTEGER, cents INTEGER);
    INSERT OR IGNORE INTO orders VALUES
        (1041, 'Ada', 'keyboard', 8900), (1042, 'Ada', 'headphones', 1999), (1043, 'Grace', 'compiler book', 4200);
    COMMIT;
"""


@contextmanager
def database() -> Generator[sqlite3.Connection]:
    """The shop's orders, in a file that is made on first use."""
    path = Path(os.environ.get("REFUNDS_DB", ".outlast/refunds.db"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=30)) as db, db:
        db.row_factory = sqlite3.Row
        db.executescript(SCHEMA)
        yield db
