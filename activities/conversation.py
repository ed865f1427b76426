"""The conversations that this worker knows: a cache, never the truth, which is the run's own history."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from outlast.activities.run_tools import RunTools
from outlast.contracts import DepsVersion, MessagesPage, Position, RunContextPage, RunFacts, extend_digest
from outlast.messages import JsonObject, ModelMessage, load_messages


class Source(Protocol):
    """Where a conversation can be had in full: the run itself."""

    async def messages(self, start: int, end: int) -> MessagesPage:
        """One page of the messages from `start` up to `end`."""
        ...

    async def context(self) -> RunContextPage:
        """What the run was started with, and its deps as they are now."""
        ...


class ConversationMoved(Exception):
    """The run no longer has the conversation that an activity was scheduled with, as after a reset."""


@dataclass
class Conversation:
    """What is known of one run.

    Attributes:
        messages: The conversation so far.
        digests: The rolling digest after each message.
        sizes: The JSON size of each message.
        size_bytes: All of them together: about how much memory the conversation takes.
    """

    facts: RunFacts | None = None
    deps: DepsVersion | None = None
    tools: RunTools | None = None
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    digests: list[str] = field(default_factory=list[str])
    sizes: list[int] = field(default_factory=list[int])
    size_bytes: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def matches(self, base: int, digest: str) -> bool:
        """The first `base` messages are those with this digest."""
        if base == 0:
            return digest == ""
        return len(self.digests) >= base and self.digests[base - 1] == digest

    def extend(self, messages: Sequence[JsonObject], parsed: Sequence[ModelMessage] | None = None) -> None:
        """Add messages at the end."""
        self.messages += parsed if parsed is not None else load_messages(messages)
        digest = self.digests[-1] if self.digests else ""
        for message in messages:
            digest = extend_digest(digest, [message])
            self.digests.append(digest)
            self.sizes.append(len(json.dumps(message)))
            self.size_bytes += self.sizes[-1]

    def cut(self, length: int) -> None:
        """Forget the messages after the first `length`."""
        self.size_bytes -= sum(self.sizes[length:])
        del self.messages[length:], self.digests[length:], self.sizes[length:]


class Conversations:
    """A bounded, least-recently-used cache of conversations.

    Args:
        max_bytes: Most JSON bytes of all conversations together; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes - 1 if max_bytes == 0 else max_bytes
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._counted: dict[str, int] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """JSON bytes of all conversations together."""
        return self._size_bytes

    async def open(self, run_key: str, position: Position, source: Source) -> Conversation:
        """The conversation up to `position.base`, from the cache where it is right, else from the run itself.

        The conversation may hold more messages than that: those of an attempt whose result was lost.

        Raises:
            ConversationMoved: The run has another conversation by now.
        """
        conversation = self._known.get(run_key)
        if conversation is None:
            # Known at once, so that calls of one step ask the run only once.
            conversation = self._known[run_key] = Conversation()
            self._counted[run_key] = 0
        async with conversation.lock:
            self._take_in(conversation, position)
            deps = conversation.deps
            if conversation.facts is None or deps is None or deps.version < position.deps_version:
                page = await source.context()
                conversation.facts, conversation.deps = page.facts, page.deps
            if not conversation.matches(position.base, position.digest):
                await self._fetch(conversation, position, source)
        self.keep(run_key, conversation)
        return conversation

    def keep(self, run_key: str, conversation: Conversation) -> None:
        """Remember a conversation, and forget those that were not needed for the longest time."""
        self._known[run_key] = conversation
        self._known.move_to_end(run_key)
        self._size_bytes += conversation.size_bytes - self._counted.get(run_key, 0)
        self._counted[run_key] = conversation.size_bytes
        while self._size_bytes > self._max_bytes and self._known:
            self.forget(next(iter(self._known)))

    def forget(self, run_key: str) -> None:
        """Drop a conversation: what is needed of it again is asked of the run."""
        if self._known.pop(run_key, None) is not None:
            self._size_bytes -= self._counted.pop(run_key)

    def _take_in(self, conversation: Conversation, position: Position) -> None:
        if position.facts is not None:
            conversation.facts = position.facts
        if position.deps is not None:
            conversation.deps = position.deps

    async def _fetch(self, conversation: Conversation, position: Position, source: Source) -> None:
        """Ask the run for what is missing; where what is here is wrong, for everything."""
        if len(conversation.messages) >= position.base:
            conversation.cut(0)
        await self._read(conversation, position.base, source)
        if not conversation.matches(position.base, position.digest):
            conversation.cut(0)
            await self._read(conversation, position.base, source)
        if not conversation.matches(position.base, position.digest):
            raise ConversationMoved(f"The run's first {position.base} messages are not those of this activity.")

    async def _read(self, conversation: Conversation, end: int, source: Source) -> None:
        start = len(conversation.messages)
        while start < end:
            page = await source.messages(start, end)
            if not page.messages:
                return
            conversation.extend(page.messages)
            start = len(conversation.messages)
