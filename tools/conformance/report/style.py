"""How the HTML report looks."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f6f7f9; --card: #ffffff; --sunk: #eef0f4; --line: #d9dde5; --ink: #1a1f2b; --soft: #566074;
  --accent: #1d5fd0;
  --passed: #1a7f4b; --failed: #c62828; --skipped: #8a6100; --unsupported: #6d4bc3;
  --passed-fill: #45b37c; --failed-fill: #e5484d; --skipped-fill: #e3b341; --unsupported-fill: #9d80e8;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #12151b; --card: #1b1f28; --sunk: #242936; --line: #343b4a; --ink: #e7eaf1; --soft: #a2abbd;
    --accent: #86b4ff;
    --passed: #5fd39a; --failed: #ff8a85; --skipped: #f0c35c; --unsupported: #bda6ff;
    --passed-fill: #2f9a66; --failed-fill: #d9484b; --skipped-fill: #b88a24; --unsupported-fill: #7d62cc;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body {
  margin: 0 auto; padding: 1.5rem clamp(.75rem, 3vw, 2.5rem) 4rem; max-width: 92rem;
  background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { margin: 0; font-size: 1.75rem; line-height: 1.25; text-wrap: balance; }
h1::before { margin-right: .5rem; }
h1.good::before { content: "✓"; color: var(--passed); }
h1.bad::before { content: "✕"; color: var(--failed); }
h2 { margin: 0 0 .75rem; font-size: 1.2rem; }
a { color: var(--accent); }
a:not(:hover) { text-decoration: none; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.about, .shown { color: var(--soft); }
.about { margin: .25rem 0 1rem; overflow-wrap: anywhere; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }

.bar { display: flex; height: .6rem; border-radius: .3rem; overflow: hidden; }
.bar.large { height: .8rem; border-radius: .4rem; background: var(--sunk); }
.bar i { min-width: 2px; }
.bar i.passed { background: var(--passed-fill); }
.bar i.failed { background: var(--failed-fill); }
.bar i.skipped { background: var(--skipped-fill); }
.bar i.unsupported { background: var(--unsupported-fill); }
.passed { color: var(--passed); }
.failed { color: var(--failed); }
.skipped { color: var(--skipped); }
.unsupported { color: var(--unsupported); }

button, select, input[type=search] {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .35rem .6rem; min-height: 2.25rem;
}
button { cursor: pointer; }
button:hover { border-color: var(--accent); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .6rem; margin: 1rem 0 1.5rem; }
.tiles button { text-align: left; padding: .6rem .9rem; }
.tiles b { display: block; font-size: 1.5rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tiles [aria-pressed=true] { border-color: currentColor; box-shadow: inset 0 0 0 1px currentColor; }

.tables {
  display: grid; grid-template-columns: minmax(0, 4fr) minmax(0, 5fr); grid-template-rows: auto 1fr; gap: 1rem;
  align-items: start; margin-bottom: 2rem;
}
.scroll {
  max-height: 30rem; overflow: auto;
  background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
}
table { width: 100%; border-collapse: collapse; }
caption { padding: .7rem .9rem .3rem; text-align: left; font-weight: 600; }
.by-operation { grid-area: 1 / 2 / span 2; }
.by-check { max-height: 20rem; }
caption small { margin-left: .4rem; font-weight: normal; color: var(--soft); }
th, td { padding: .3rem .5rem; text-align: left; font-weight: normal; border-top: 1px solid var(--line); }
thead th { position: sticky; top: 0; z-index: 1; background: var(--card); box-shadow: inset 0 -1px var(--line); }
thead th { color: var(--soft); font-size: .85rem; border: 0; }
th:first-child { padding-left: .9rem; }
td:last-child, th:last-child { padding-right: .9rem; }
tbody th { overflow-wrap: anywhere; }
tbody th small { display: block; color: var(--soft); line-height: 1.35; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; width: 1%; }
.none { color: var(--soft); opacity: .55; }
td.bars { width: 20%; min-width: 3rem; }

#filters { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: end; }
#filters label { display: grid; gap: .15rem; font-size: .85rem; color: var(--soft); min-width: 0; }
#filters select, #filters input { font-size: 15px; color: var(--ink); width: 100%; max-width: 18rem; }
#filters .text { flex: 1 1 14rem; }
#filters .text input { max-width: none; }
.shown { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: center; margin: .75rem 0; }
.shown label { display: inline-flex; gap: .35rem; align-items: center; cursor: pointer; }
#list { list-style: none; margin: 0; padding: 0; }
#list > li { content-visibility: auto; contain-intrinsic-size: auto 3.4rem; margin-bottom: .35rem; }
#more { display: block; margin: 1rem auto; }

details { background: var(--card); border: 1px solid var(--line); border-left: 4px solid; border-radius: .5rem; }
details.passed { border-left-color: var(--passed-fill); }
details.failed { border-left-color: var(--failed-fill); }
details.skipped { border-left-color: var(--skipped-fill); }
details.unsupported { border-left-color: var(--unsupported-fill); }
summary {
  display: grid; grid-template-columns: 7rem minmax(0, 1fr) minmax(0, 22rem) 5rem; gap: 0 .9rem; align-items: baseline;
  padding: .45rem .9rem; cursor: pointer; list-style: none;
}
summary::-webkit-details-marker { display: none; }
summary:hover { background: var(--sunk); }
summary .status { font-weight: 600; }
summary .status::before { content: "▸"; display: inline-block; width: 1.1em; color: var(--soft); }
details[open] > summary .status::before { content: "▾"; }
summary .name { color: var(--ink); font-weight: 500; overflow-wrap: anywhere; }
summary .where { color: var(--soft); text-align: right; }
summary .where, summary .reason { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
summary .time { color: var(--soft); text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary .reason { grid-column: 2 / -1; color: var(--soft); font-size: .9rem; }
details[open] .reason { display: none; }
.detail { padding: .3rem .9rem .9rem; color: var(--ink); }
.detail dl { display: grid; grid-template-columns: 7rem minmax(0, 1fr); gap: .45rem .9rem; margin: 0; }
.detail dt { color: var(--soft); }
.detail dt:has(+ .value) { padding-top: .35rem; }
.detail dd { margin: 0; min-width: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.detail dd.value {
  font: .87rem/1.5 var(--mono); background: var(--sunk); border-radius: .4rem; padding: .4rem .6rem;
  max-height: 20rem; overflow: auto;
}
.detail dd.got { box-shadow: inset 3px 0 var(--failed-fill); }
.detail dd.expected { box-shadow: inset 3px 0 var(--passed-fill); }
.detail dd ul { display: flex; flex-wrap: wrap; gap: .3rem; margin: 0; padding: 0; list-style: none; }
.detail dd ul { max-height: 16rem; overflow: auto; }
.detail dd li { font: .85rem/1.5 var(--mono); background: var(--sunk); border-radius: .35rem; padding: .05rem .5rem; }
.detail dd li small { color: var(--soft); font-size: inherit; }

@media (max-width: 44rem) {
  body { padding-top: 1rem; }
  h1 { font-size: 1.35rem; }
  .tiles { grid-template-columns: repeat(6, 1fr); }
  .tiles button { grid-column: span 2; padding: .45rem .6rem; font-size: .9rem; }
  .tiles button:nth-child(-n+2) { grid-column: span 3; }
  .tables { display: block; }
  .scroll { max-height: 19rem; margin-bottom: 1rem; }
  .bars { display: none; }
  caption small { display: block; margin: 0; }
  th, td { padding: .3rem .3rem; font-size: .85rem; }
  thead th { font-size: .75rem; }
  #filters label { flex: 1 1 40%; }
  #filters .text { flex-basis: 100%; }
  summary { grid-template-columns: minmax(0, 1fr) auto; padding: .45rem .7rem; }
  summary .name, summary .where, summary .reason { grid-column: 1 / -1; }
  summary .time { grid-column: 2; grid-row: 1; }
  summary .where { text-align: left; font-size: .85rem; }
  summary .reason { white-space: normal; display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; }
  .detail { padding: .2rem .7rem .7rem; }
  .detail dl { grid-template-columns: minmax(0, 1fr); gap: .1rem; }
  .detail dt, .detail dt:has(+ .value) { margin-top: .4rem; padding: 0; font-size: .85rem; }
  .detail dt:first-child { margin-top: 0; }
}
@media print {
  .tiles, #filters, .shown button, .shown label, #more { display: none; }
  .scroll { max-height: none; }
}
"""
