#!/bin/bash
# The self-test of an allocation, of ranks that stand for those of two nodes.
source "$(dirname "$0")/functions.sh"
shim=$3 nodes_shim=$4

# Rates of ranks that share cores with other tests say nothing: --min-share 0 compares none.
arguments=(selftest --seconds 0.1 --min-share 0 --save runs/a --json report.json --tp 2)

# test_nodes RANKS VARIABLE=VALUE...: runs it on so many ranks of each node; the variables are those of the second node.
test_nodes() {
  timeout -k 5 60 "$mpiexec" -n "$1" env LD_PRELOAD="$nodes_shim" TRIREME_NODE=0 SLURMD_NODENAME=node01 \
    "$trireme" "${arguments[@]}" : -n "$1" env LD_PRELOAD="$nodes_shim" TRIREME_NODE=1 SLURMD_NODENAME=node02 "${@:2}" \
    "$trireme" "${arguments[@]}" >out 2>err
  code=$?
}
verdicts() { field verdict report.json | sort | uniq -c; }

LD_PRELOAD=$shim TRIREME_FAULT_FOLDER=runs/a TRIREME_FAULT_AT=3 TRIREME_FAULT=kill timeout -k 5 60 "$trireme" selftest \
  --quick --seconds 0 --save runs/a >out 2>err
check "a test that is killed leaves its file" [ -e runs/a/selftest_file-*-rank0 ]
touch -d '2 hours ago' runs/a/*
touch runs/a/selftest_file-2-rank0
test_nodes 1
check "a good allocation passes" [ $code -eq 0 ]
check "the last line says so" [ "$(tail -n 1 out)" = ok ]
for row in "gemm bf16" "attention fp32" "cross_entropy fp16" "burn results" "product rate" "MPI latency" \
  "world collectives" "tensor all_reduce bandwidth" "file system" "kernel"; do
  check "the table has the row $row" grep -qE "^(ok|differs) +$row" out
done
check "the file of results names both nodes" grep -q '"node02"' report.json
check "and says that they passed" grep -q '^ "passed": true,$' report.json
check "no file is left in the run's folder but that of a test that may still run" \
  [ "$(ls -A runs/a)" = selftest_file-2-rank0 ]
rm runs/a/*

# Two ranks on each node: groups inside a node, and across them.
arguments+=(--quick)
test_nodes 2 LD_PRELOAD="$nodes_shim $shim" TRIREME_FAULT_FOLDER=runs/a TRIREME_FAULT_AT=2 TRIREME_FAULT=28
check "a full file system on one node gives exit code 4" [ $code -eq 4 ]
check "that node alone is named, ready for --exclude" [ "$(tail -n 1 out)" = node02 ]
check "the table begins with it" grep -qE '^FAILED +file system .* node02 .*No space left on device' <(sed -n 2p out)
check "the file of results names it" grep -qzE '"bad_nodes": \[[[:space:]]*"node02"[[:space:]]*\]' report.json
check "no file is left after a failure" [ -z "$(ls -A runs/a)" ]

for item in "all_reduce, group of 2 ranks inside one node" "all_reduce, group of 2 ranks across nodes" \
  "exchange, group of 4 ranks across nodes" "grouped_exchange, group of 4 ranks across nodes"; do
  check "collectives: $item" grep -qF "\"item\": \"$item\"" report.json
done
for row in "inside a node" "across nodes"; do check "latency $row" grep -qE "^ok +MPI latency $row" out; done
check "--quick leaves out rates" [ -z "$(grep -E 'product rate|copy rate' out)" ]

arguments+=(--backend cuda)
test_nodes 1
check "nodes without a GPU are named, with the reason" \
  [ "$code $(tail -n 1 out) $(grep -c '^FAILED   GPU .* node0[12] ' out)" = "4 node01,node02 2" ]
refused 5 "no/such/report.json" 1 selftest --seconds 0 --json no/such/report.json
refused 5 "no/such/report.json" 2 selftest --seconds 0 --backend cuda --json no/such/report.json
on 2 selftest --seconds 0 --backend cuda --save runs/b --json runs/b/report.json
check "results in the new folder of a run" [ "$code $(grep -c '^ "passed": false,$' runs/b/report.json)" = "4 1" ]
