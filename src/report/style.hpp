#pragma once

#include <string_view>

namespace trireme::report {

/// Style sheet of the page. The colours of curves are those of Okabe and Ito (jfly.uni-koeln.de/color), distinguishable
/// for colour-blind readers, lighter on a dark background.
inline constexpr std::string_view style_sheet = R"css(
:root {
  --ground: #ffffff; --card: #f6f7f9; --text: #1b1f24; --soft: #57606a; --rule: #d5d9df; --grid: #e4e7eb;
  --good: #00694c; --paused: #0060a0; --bad: #b42318; --unknown: #6b5200;
  --c0: #0072b2; --c1: #d55e00; --c2: #008a64; --c3: #b8558f; --c4: #9a6b00; --c5: #2f8fc4; --c6: #7a1fa2; --c7: #4d4d4d;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ground: #12161b; --card: #1a2027; --text: #e3e7ec; --soft: #9ba6b2; --rule: #39424d; --grid: #29313a;
    --good: #5fd3a5; --paused: #79c0ff; --bad: #ff9487; --unknown: #e8c268;
    --c0: #5cb8f0; --c1: #ff8f43; --c2: #3fd09c; --c3: #ee9fcb; --c4: #f0c23c; --c5: #9adcff; --c6: #cf9cf5; --c7: #c3c8ce;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 1500px; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; overflow-wrap: break-word;
}
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.1rem 0 .4rem; }
p { margin: .4rem 0; max-width: 75ch; }
a { color: inherit; }
.made, .reading, .none, .reason { color: var(--soft); }
.made, .reading { font-size: .9rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 500px), 1fr)); gap: 1rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 0 2rem; }
.columns > div { min-width: 0; }
.columns th, .columns td, .reason { overflow-wrap: anywhere; }
.columns .time, .columns thead th { overflow-wrap: normal; }
figure { margin: 0; padding: .7rem .8rem; background: var(--card); border: 1px solid var(--rule); border-radius: 6px; min-width: 0; }
figure h3 { margin: 0 0 .3rem; }
figure svg:not(.swatch) { display: block; width: 100%; height: auto; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .y { text-anchor: end; }
svg .x { text-anchor: middle; }
svg .label { text-anchor: end; font-size: 11px; }
svg .unit { text-anchor: middle; }
svg path { fill: none; vector-effect: non-scaling-stroke; }
svg .grid { stroke: var(--grid); }
svg .axis { stroke: var(--soft); }
svg .line { stroke-width: 1.7; stroke-linejoin: round; stroke-linecap: round; }
svg .band { opacity: .3; stroke-width: 1; }
svg .life { stroke-width: 1.2; stroke-dasharray: 1.5 3.5; opacity: .85; }
svg .skip { stroke-width: 1.6; }
svg .c0 { stroke: var(--c0); } svg .c1 { stroke: var(--c1); } svg .c2 { stroke: var(--c2); } svg .c3 { stroke: var(--c3); }
svg .c4 { stroke: var(--c4); } svg .c5 { stroke: var(--c5); } svg .c6 { stroke: var(--c6); } svg .c7 { stroke: var(--c7); }
svg .band.c0, svg circle.c0, svg .warn.c0 { fill: var(--c0); } svg .band.c1, svg circle.c1, svg .warn.c1 { fill: var(--c1); }
svg .band.c2, svg circle.c2, svg .warn.c2 { fill: var(--c2); } svg .band.c3, svg circle.c3, svg .warn.c3 { fill: var(--c3); }
svg .band.c4, svg circle.c4, svg .warn.c4 { fill: var(--c4); } svg .band.c5, svg circle.c5, svg .warn.c5 { fill: var(--c5); }
svg .band.c6, svg circle.c6, svg .warn.c6 { fill: var(--c6); } svg .band.c7, svg circle.c7, svg .warn.c7 { fill: var(--c7); }
svg .d1 { stroke-dasharray: 7 3; } svg .d2 { stroke-dasharray: 2 2.5; } svg .d3 { stroke-dasharray: 9 3 2 3; }
svg .d4 { stroke-dasharray: 4 3; }
.swatch { width: 34px; height: 10px; vertical-align: middle; }
.legend { list-style: none; margin: .4rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; font-size: .9rem; }
.legend.runs { margin: 1rem 0; }
.legend li { max-width: 100%; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.wide tbody th { position: sticky; left: 0; background: var(--ground); min-width: 6ch; }
.compared table { margin-bottom: 1rem; }
.compared thead th, .compared td { white-space: normal; overflow-wrap: anywhere; min-width: 10ch; }
.compared .time { white-space: normal; }
.summary tbody th { min-width: 20ch; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 215px), 1fr)); gap: .7rem 1.5rem; margin: 1rem 0; }
.facts dt { color: var(--soft); font-size: .85rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .22rem .9rem .22rem 0; border-bottom: 1px solid var(--grid); }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 400; color: var(--soft); }
.number { text-align: right; white-space: nowrap; }
.time, .lives .state { white-space: nowrap; }
.state { font-weight: 600; }
.good { color: var(--good); } .paused { color: var(--paused); } .bad { color: var(--bad); } .unknown { color: var(--unknown); }
.good::before { content: "\2713\00a0"; } .paused::before { content: "\25AE\25AE\00a0"; } .bad::before { content: "\25B2\00a0"; }
.unknown::before { content: "?\00a0"; }
.reason { max-width: 48ch; min-width: 20ch; font-size: .88rem; }
.notes { padding-left: 1.2rem; color: var(--unknown); }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--soft); }
@media (max-width: 640px) {
  body { padding: .8rem .7rem 2rem; }
  figure { padding: .5rem; }
  svg text { font-size: 17px; }
  svg .label { font-size: 15px; }
  .compared table { font-size: .82rem; }
  .compared th, .compared td { padding-right: .5rem; min-width: 8ch; }
  .summary tbody th { min-width: 8ch; }
  .figures { gap: .6rem; }
}
@media (max-width: 1000px) {
  .lives .state, .lives .time { white-space: normal; }
}
@media print {
  :root { color-scheme: light; font-size: 9pt; }
  body { max-width: none; padding: 0 1px; font-size: 1rem; }
  details:not([open]) { display: none; }
  h1, h2, h3, thead { break-after: avoid; }
  h2 { margin-top: 1.2rem; }
  figure, tr, dl > div { break-inside: avoid; }
  figure { background: none; padding: .4rem .5rem; }
  svg text { font-size: 17px; }
  svg .label { font-size: 15px; }
  svg .line { stroke-width: 1.2; }
  .figures, .columns { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
  .figures { gap: .6rem; }
  .wide { overflow: visible; }
  .wide tbody th { position: static; }
  table, .reason { font-size: .9rem; }
  th, td { padding-right: .5rem; }
  thead th, .number, .time, .lives .state, .columns .time { white-space: normal; }
  .compared thead th, .compared td { min-width: 0; }
  .summary tbody th, .reason { min-width: 12ch; }
}
)css";

}  // namespace trireme::report
