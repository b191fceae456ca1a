"""How the page looks: one column, figures first, light or dark as the reader has it, and plain black on paper.

The sheet stands in the page, and the page's policy allows this sheet alone, by its hash: nothing else on the page can
bring in a style, a script or a request.
"""

from base64 import b64encode
from hashlib import sha256

SHEET = """
:root { color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1b1f24; --soft: #555d68; --line: #dcdfe4; --faint: #eceef1;
  --raw: #7b8492; --ours: #1257c2; --wash: #1257c21f; --limit: #b3261e; --mark: #9a5b00; --good: #146c3c; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171b; --card: #1b1f25; --ink: #e8eaed; --soft: #a9b1bc; --line: #343a43; --faint: #262b32;
  --raw: #98a1ae; --ours: #85b4ff; --wash: #85b4ff29; --limit: #ff8a80; --mark: #f2b45a; --good: #7fd6a1; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main, footer { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
main { padding-top: 2.5rem; }
footer { margin-top: 2.5rem; padding-bottom: 3rem; color: var(--soft); font-size: .92rem; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 .4rem; text-wrap: balance; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3rem 0 .3rem; }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; overflow-wrap: anywhere; }
p { margin: .3rem 0 .9rem; max-width: 46rem; } .soft { color: var(--soft); }
.small { font-size: .85rem; max-width: none; }
.lead { font-size: 1.1rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .9rem; margin: 1.6rem 0;
  padding: 0; }
.cards > div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.1rem; }
.cards dt { color: var(--soft); font-size: .92rem; } .cards dd { margin: 0; }
.figure { font-size: 2.1rem; font-weight: 650; line-height: 1.25; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .bad { color: var(--limit); }
.note { border-left: 3px solid var(--mark); padding: .1rem 0 .1rem .9rem; margin: 1.2rem 0; max-width: 60rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1.1rem 1.2rem;
  margin: 1.2rem 0; }
figure { margin: .8rem 0; } figcaption { color: var(--soft); font-size: .92rem; margin-bottom: .5rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: 0 0 .4rem; list-style: none;
  font-size: .9rem; }
.legend svg { width: 1.5rem; height: .8rem; vertical-align: -.05em; margin-right: .35rem; }
.chart { display: block; width: 100%; height: 15rem; overflow: visible; }
.chart text { fill: var(--soft); font-size: .78rem; font-variant-numeric: tabular-nums; }
.chart .label { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.grid { stroke: var(--faint); } .base { stroke: var(--line); }
.raw { stroke: var(--raw); fill: none; stroke-width: 1.75px; }
.ours { stroke: var(--ours); fill: none; stroke-width: 2.25px; }
.raw, .ours { vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.wash { fill: var(--wash); stroke: none; }
.limit { stroke: var(--limit); stroke-width: 1.5px; stroke-dasharray: 6 4; }
.mark { fill: var(--mark); stroke: var(--card); stroke-width: 1.5px; } .chart .over { fill: var(--limit); }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: .5rem 2rem; }
.two > *, .cards > * { min-width: 0; }
.wide { overflow-x: auto; margin: .5rem 0 1rem; }
.wide:focus-visible, summary:focus-visible { outline: 2px solid var(--ours); }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; width: 100%; }
caption { text-align: left; color: var(--soft); padding-bottom: .35rem; }
th, td { text-align: right; padding: .32rem .7rem; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; font-weight: 400; } strong { font-weight: 650; }
tr > :last-child { padding-right: 0; }
thead th { color: var(--soft); font-weight: 500; vertical-align: bottom; border-color: var(--line); }
.bars td:has(.gauge), .bars th:nth-child(2), .both th:nth-child(3) { text-align: left; }
.bars td:has(.gauge) { width: 55%; } .both td:has(.gauge) { width: 30%; }
.gauge { display: grid; grid-template-columns: 1fr auto; gap: .7rem; align-items: center; }
.gauge span { min-width: 4rem; text-align: right; }
.bar { display: block; width: 100%; height: .85rem; min-width: 3rem; } .bar .rail { fill: var(--faint); }
.bar .fill { fill: var(--ours); } .bar .plain { fill: var(--raw); } abbr { text-decoration: none; }
.long th:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
details { margin: .4rem 0; } summary { cursor: pointer; color: var(--ours); width: fit-content; padding: .25rem 0; }
.terms { columns: 2 22rem; column-gap: 2.5rem; } .terms > div { break-inside: avoid; padding-bottom: .7rem; }
.terms dt { font-weight: 600; } .terms dd { margin: 0; max-width: 46rem; color: var(--soft); }
@media (max-width: 40rem) { h1 { font-size: 1.5rem; } .figure { font-size: 1.75rem; } main { padding-top: 1.5rem; }
  article { padding: .9rem; } .cards { grid-template-columns: 1fr 1fr; gap: .6rem; } .cards > div { padding: .75rem; }
  .bars th, .bars td { padding: .35rem .3rem; white-space: normal; }
  table { font-size: .86rem; } th:first-child, .bars th:first-child { padding-left: 0; }
  .bars tr > :last-child { padding-right: 0; } .bar { min-width: 2.5rem; } .gauge span { min-width: 3.2rem; }
  .both .gauge { grid-template-columns: 1fr; gap: .1rem; }
  .both .gauge span { text-align: left; } .two { gap: .5rem; } }
@media print { :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --faint: #ddd;
  --raw: #777;
  --ours: #0b4aa8; --wash: #0b4aa81a; --limit: #a11; --mark: #7a4800; --good: #0b5d30; color-scheme: light; }
  body { font-size: 10.5pt; } main { padding: 0; } details { display: none; } .wide { overflow: visible; }
  article { border: 0; padding: 0; } .cards { grid-template-columns: repeat(3, 1fr); }
  .two { grid-template-columns: 1fr 1fr; } .cards > div, figure, table, .note { break-inside: avoid; }
  h2, h3 { break-after: avoid; } @page { margin: 15mm; } }
"""
POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(SHEET.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)
"""What the page may load: this sheet."""
