"""The performer of the proxy: performs the actions of a request with a worker's services."""

from collections.abc import Sequence
from functools import cached_property, partial
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from proxy import events
from proxy.config.policies import DEFAULT, SMALL_WINDOW_TOKENS
from proxy.decide.actions import Forwarding, Interpreter
from proxy.decide.conversation import Asked, Conversation, FoundValues, Writing, choose_originals
from proxy.decide.question import Question
from proxy.events import MODEL_MAX_CHARS
from proxy.foundation.errors import ProxyError
from proxy.history.identity import Identity
from proxy.history.request import Request
from proxy.models.tokenizer import Tokenizer
from proxy.models.windows import resolve_window
from proxy.serve.request_context import (
    CompiledPolicy,
    Placement,
    RequestOptions,
    choose_placement,
    find_tenant,
    make_window_scope,
)
from proxy.serve.services import Services
from proxy.serve.summaries import SummaryCall, SummaryOrder, fetch_whole_answer
from proxy.shorten.economics import LEARNED_SECONDS, StoredWindow, Window
from proxy.shorten.summary import Summary
from proxy.store.deletions import is_deleted
from proxy.upstream.client import Call, Client
from proxy.wire.formats import COMPACTING_PATHS, REQUEST_FORMATS
from proxy.wire.json_body import Prefix
from proxy.wire.known_requests import WORTHWHILE_BYTES
from proxy.wire.refusals import AddedOption, RefusedOption
from proxy.wire.token_counts import read_usage

if TYPE_CHECKING:
    from proxy.store.contract import Store
    from proxy.store.transcripts.writer import SubmittedHistory


class ActionPerformer(Interpreter):
    def __init__(
        self,
        services: Services,
        call: Call,
        options: RequestOptions,
        request: Request,
        *,
        policy: CompiledPolicy,
        client: Client,
        prefix: Prefix | None,
        arrived_at: float,
    ) -> None:
        self.kept: SubmittedHistory | None = None
        self.sent_body: bytes = request.source
        """The body of the request as it was sent last."""
        self.added: Sequence[AddedOption] = ()
        """The options that were added to it."""
        self.dropped: Sequence[AddedOption] = ()
        """The options that were added to the refused request, and are not in its retry."""
        self.policy = policy
        self._services = services
        self._store: Store = services.store if policy.settings.store_text else services.memory
        """The store of everything that is remembered of the conversation."""
        self._call = call
        self._request = request
        self._options = options
        self._client = client
        self._prefix = prefix
        self._arrived_at = arrived_at
        self.scope = make_window_scope(client.upstream, request.model, call)
        self._watched_caller = call.caller.team or self.scope.caller
        """The team whose fetches are watched together; without one, the caller's own credentials."""
        self.profile = services.profiles.find(client.upstream, request.model, policy.settings.estimator)

    @cached_property
    def placement(self) -> Placement:
        refused_options = self._services.refused_options
        return choose_placement(self._call, self.policy.settings, self._options, self.scope, refused_options)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.profile.tokenizer.of_owner(self.scope.caller)

    @property
    def _window(self) -> Window:
        """The model's window before anything is learned of it."""
        window, probed_window = self.profile.window, self._services.window_probe.find(self.scope)
        if probed_window is None or window.origin == "config":
            return window
        resolved_window = resolve_window(self._request.model, probed_window)
        return replace(resolved_window, prices=window.prices, cliffs=window.cliffs)

    async def gather(self) -> Asked:
        services, settings, profile, request = self._services, self.policy.settings, self.profile, self._request
        secret = await services.secret.get()
        options = self._options
        mode = options.mode
        if settings.mode == "observe" and mode == "auto":
            mode = "observe"
        recall_tool, answers = b"", REQUEST_FORMATS[self._call.path]
        if settings.recall == "on" and answers.allows_rounds(request.source):
            recall_tool = answers.recall_tool
        rules = replace(
            self.policy.rules,
            redact=lambda raw: services.redaction.of_json(raw)[0],
            recall_tool=recall_tool,
        )
        asks_provider = request.provider_compacts or self._call.path in COMPACTING_PATHS
        lacks_usage = (
            request.stream and not request.asks_usage and not services.refused_options.has(self.scope, "usage-option")
        )
        return Asked(
            request=request,
            rules=rules,
            count=self.tokenizer.count,
            now=self._arrived_at,
            mode=mode,
            focus=options.focus,
            locate_originals=services.keeper.locate if settings.transcripts else lambda _: "",
            name_rewritten=partial(services.result_watch.name_rewritten, request),
            tenant=find_tenant(self._call, secret),
            secret=secret,
            name=options.name,
            request_id=self._call.request_id,
            base_url=self._client.upstream.base_url,
            upstream=self._client.upstream.name,
            caller=self._call.caller,
            counter=profile.counter,
            prior=profile.prior,
            window=self._window,
            prices=profile.prices,
            cache_seconds=profile.cache_seconds,
            refetches_much=services.refetch_watch.is_high(self._watched_caller),
            is_known_caller=services.accepted.knows(self._call),
            originals=choose_originals(
                is_kept=settings.transcripts,
                is_required=services.keeper.transcripts.required,
                without_originals=settings.without_originals,
            ),
            may_ask_usage=lacks_usage,
            provider_compacts=mode != "force" and asks_provider,
        )

    def _is_deleted(self, tenant: str, conversation: str) -> bool:
        """Return whether the conversation was deleted after this request came. Nothing of it is stored any more."""
        orders = self._services.deletions
        if not orders:
            return False  # redaction takes longer than all else here
        user = self._services.redaction.of_name(self._request.user)
        return is_deleted(orders, tenant, conversation, user, self._arrived_at)

    async def count_tokens(self, pieces: Sequence[bytes]) -> list[int]:
        return await self.tokenizer.count_all(pieces)

    async def look_up(self, blocks: Sequence[str], facts: Sequence[Sequence[str]]) -> FoundValues | None:
        return await self._store.find_first(blocks, *facts)

    async def store_block(self, key: str, block: bytes, replaces: bytes | None, identity: Identity) -> bytes | None:
        if self._is_deleted(identity.tenant, identity.conversation):
            return None
        return await self._store.put_block(key, block, over=replaces)

    async def store_fact(self, key: str, value: bytes, seconds: float) -> None:
        await self._store.write_fact(key, value, seconds)

    async def probe_window(self) -> None:
        self._services.window_probe.start(self._client, self._call, self.scope)

    async def share_probed_window(self, conversation: Conversation) -> None:
        if (window := self._services.window_probe.unshared.pop(self.scope)) is not None:
            _, key, _ = conversation.model_keys
            await self._store.write_fact(key, StoredWindow(window).to_bytes(), LEARNED_SECONDS)

    @property
    def _summary_client(self) -> Client:
        return self.policy.summary_client or self._client

    async def can_summarize(self, conversation: Conversation) -> bool:
        scope = conversation.identity.tenant, self._summary_client.upstream.name
        return self._may_ask(conversation) and not self._services.summarizer.is_resting(scope)

    def _may_ask(self, conversation: Conversation) -> bool:
        """Return False for an unknown caller if another upstream writes summaries: its key is not the caller's."""
        is_own = self._summary_client is self._client
        return is_own or conversation.is_known_caller or self._services.accepted.knows(self._call)

    async def start_summary(self, question: Question, conversation: Conversation) -> bool:
        if self._is_deleted(conversation.identity.tenant, conversation.identity.conversation):
            return False
        return self._services.summarizer.start(self._order(question, conversation))

    async def keep_originals(self, writing: Writing, conversation: Conversation) -> bool:
        keeper, identity = self._services.keeper, conversation.identity
        if writing is Writing.CHECK:
            return await keeper.check_writable()
        if self._is_deleted(identity.tenant, identity.conversation):
            return False
        policy = self.policy.rules.label
        if writing is Writing.HAND_OVER:
            self.kept = keeper.keep(identity, self._request, policy)
            return True
        must = writing is Writing.WRITE_OR_REFUSE
        self.kept, is_written = await keeper.write(identity, self._request, policy, must=must)
        if is_written and self.kept is not None:
            path = keeper.locate(identity)
            self._services.emit(events.OriginalKept(identity.conversation, path, self._call.request_id))
        return is_written

    def may_doubt(self) -> bool:
        """Return whether the upstream has never accepted one of the added options from this caller."""
        taken = self._services.refused_options.was_taken
        return any(not taken(self.scope, option) for option in self.added)

    async def note_accepted(self, refused_option: RefusedOption | None) -> None:
        services = self._services
        services.accepted.add(self._call)
        refused_options: Sequence[AddedOption] = ()
        if refused_option == "options":
            refused_options = [
                option for option in self.dropped if not services.refused_options.was_taken(self.scope, option)
            ]
        elif refused_option is not None:
            refused_options = [refused_option]
        for option in refused_options:
            services.refused_options.add(self.scope, option)
        for option in self.added:
            services.refused_options.note_taken(self.scope, option)
        if len(self._request.source) >= WORTHWHILE_BYTES:
            services.known_requests.add(self.scope.caller, self._request, self._prefix)

    async def await_summary(
        self, question: Question | None, covers: int, seconds: float, conversation: Conversation
    ) -> Summary | None:
        summarizer = self._services.summarizer
        if question is None:
            call_seconds = conversation.rules.summary.seconds
            return await summarizer.await_pending(self._store, conversation.identity, covers, seconds, call_seconds)
        if not self._may_ask(conversation):  # a client has asked for it by name
            return None
        return await summarizer.await_new(self._order(question, conversation), seconds)

    def _order(self, question: Question, conversation: Conversation) -> SummaryOrder:
        settings = self.policy.settings
        window = conversation.window
        client = self._summary_client
        call, trace = self._call, self._call.trace
        if trace is not None:
            call = replace(call, trace=trace.child(token_hex(8)))
        if settings.summary.model:
            window = self._services.profiles.find(client.upstream, settings.summary.model, settings.estimator).window
        summary_call = SummaryCall(
            question=question,
            request=self._request,
            call=call,
            client=client,
            count=conversation.count,
            redaction=self._services.redaction,
            refused_options=self._services.refused_options,
            placement=self.placement,
            model=settings.summary.model,
            is_other_upstream=client is not self._client,
            room=window.usable_tokens(question.summary.max_tokens),
            longest_answer=window.output,
        )
        return SummaryOrder(
            summary_call,
            self._store,
            conversation.identity,
            self.policy.rules.policy,
            conversation.count_unused_summaries(),
            window,
        )

    async def recount(self) -> int:
        requests = REQUEST_FORMATS[self._call.path]
        # Only the count of the prompt is of use, so the answer is as short as it may be.
        max_tokens = 16 + self._request.least_thinking
        body = requests.answer_within(requests.disable_streaming(self.sent_body), max_tokens)
        try:
            answer, _ = await fetch_whole_answer(self._client, replace(self._call, body=body), self._request.model)
        except ProxyError:
            return 0  # the client has its answer: only a figure is lost
        return read_usage(answer.usage).prompt

    def report_oddities(self, forwarding: Forwarding) -> None:
        """Report, once for each model or conversation, what its operator may want to change."""
        services, conversation, reason = self._services, forwarding.conversation, forwarding.decision.reason
        upstream, model = self._client.upstream.name, self._request.model[:MODEL_MAX_CHARS]
        policy = self.policy.rules.policy
        window = self._window if conversation is None else conversation.window
        # A configured window is reported at the start, and whoever has chosen a policy knows the window.
        is_chosen = policy != DEFAULT or "policy" in self._client.upstream.model_fields_set
        may_be_small = not is_chosen and window.origin != "config" and self.policy.rules.summary.enabled
        if reason == "window-unknown":
            if services.count_occasion(f"window {upstream} {model}") == 2:  # noqa: PLR2004 (the first starts the probe)
                services.emit(events.WindowUnknown(upstream, model, policy))
        elif conversation is not None and reason == "client-rewrites":
            if services.count_occasion(f"rewrites {conversation.rewritten}") == 1:
                services.emit(events.ClientRewrites(conversation.rewritten, model))
        elif may_be_small and window.tokens is not None and window.tokens < SMALL_WINDOW_TOKENS:
            requests = services.count_occasion(f"small window {upstream} {model}")
            if requests == 1:
                services.emit(events.WindowSmall(upstream, model, window.tokens))

    async def note(self, event: events.Event) -> None:
        """Add the fields that only this worker knows to an event, and tell the listeners."""
        services, team = self._services, self._call.caller.team
        if isinstance(event, events.PromptTruncated):
            event = replace(event, is_repeated=services.count_occasion(event.conversation) > 1)
        if isinstance(event, events.TurnEnded):
            session = self._options.name or self._options.session or self._request.session
            user, redaction = self._request.user, services.redaction
            if self._is_deleted(event.tenant, event.conversation):
                user = session = ""
            event = replace(
                event,
                user=redaction.of_name(user),
                session=redaction.of_name(session),
                placed=", ".join(option for option in self.added if option != "usage-option"),
                arm=self.policy.arm if self._call.caller.switch == "on" else "",
            )
            if event.action != "observed":
                watch, watched = services.refetch_watch, self._watched_caller
                share = watch.note(watched, has_refetched=event.refetches > 0)
                if share is not None:
                    services.emit(events.RefetchRate(team, watch.is_high(watched), share))
        services.emit(event)
