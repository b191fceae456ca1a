"""The identity of a history: its owner, its chain and its head, and the keys of all that is stored for it.

A client sends its whole history every time and gives it no name, so everything is stored under links of its chain:

    team-a/block/<link>             the block of a prefix (`shorten/block.py` reads it)
    team-a/block/<link>.<head>      the same, if the first key holds a summary of another head
    team-a/observed/block/<link>    a block that was only observed
    team-a/summary/<link>.<head>    a summary before a block uses it
    team-a/anchor/<link>            the last request that ended at a link
    team-a/scale/<counter>          how an upstream counts the tokens of a family of models
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from proxy.history.chain import compute_chain
from proxy.history.head_digest import compute_head_digest
from proxy.history.request import Request

OBSERVED = "observed"
"""Keys of blocks that were only observed begin with tenant/observed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A history as the store knows it."""

    tenant: str
    links: Sequence[bytes]
    counter: str
    """Upstream and family of models: the counts of one say nothing about another."""
    head: str = ""
    """The digest of its head."""

    @classmethod
    def of(cls, request: Request, tenant: str, secret: bytes, name: str, counter: str) -> "Identity":
        """Return the identity of a history. *name* is the client's, to tell apart conversations with equal content."""
        links = compute_chain(request, tenant, secret, name)
        key = tenant, secret, *(message.raw for message in request.head)

        def compute_digest() -> str:
            return compute_head_digest(request.head, tenant, secret)

        return cls(tenant, links, counter, request.columns.head_digest(key, compute_digest))

    @property
    def conversation(self) -> str:
        """The name of the conversation. A history of a head alone is named by its owner: tenants share no name."""
        if not self.links:
            return ""
        return self.links[:2][-1].hex()[:16]

    @property
    def scale_key(self) -> str:
        return f"{self.tenant}/scale/{self.counter}"

    def anchor_key(self, link: bytes) -> str:
        return f"{self.tenant}/anchor/{link.hex()}"

    def block_key(self, observed: bool, link: bytes) -> str:  # noqa: FBT001 (bound before the link)
        return make_block_key(self._find_space(observed=observed), link)

    def block_keys(self, link: bytes, *, observed: bool) -> tuple[str, str]:
        """Return the two keys of a block: that of its link, and the one for a summary of this head."""
        space = self._find_space(observed=observed)
        return make_block_key(space, link), make_bound_key(space, link, self.head)

    def summary_key(self, covers: int, focus: str = "") -> str:
        """Return the key of a summary. One with a focus is only for the request that asks for it."""
        key = self.summary_key_of(self.links[covers])
        if not focus:
            return key
        return f"{key}.{blake2b(focus.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"

    def summary_key_of(self, link: bytes) -> str:
        return f"{self.tenant}/summary/{link.hex()}.{self.head}"

    def summary_keys(self) -> list[str]:
        """Return the keys of summaries of every prefix, longest first."""
        return [self.summary_key_of(link) for link in reversed(self.links)]

    def _find_space(self, *, observed: bool) -> str:
        if observed:
            return f"{self.tenant}/{OBSERVED}"
        return self.tenant


def make_block_key(tenant: str, link: bytes) -> str:
    """Return the key of a block. The tenant comes first, so that a store can keep tenants apart."""
    return f"{tenant}/block/{link.hex()}"


def make_bound_key(tenant: str, link: bytes, head: str) -> str:
    """Return the key of a block if the link's own key holds a summary of another head."""
    return f"{make_block_key(tenant, link)}.{head}"
