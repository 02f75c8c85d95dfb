#!/bin/bash
# Records the calls by which the program changes a folder, and tries every state that a power loss may leave of it
# (crash_states.py says which): every checkpoint that is visible must be complete, and the last one that was said to be saved
# must be there. Needs strace and Python.
# usage: [SEED=0] tests/crash_states.sh [TRIREME [MPIEXEC]]    exit status 77: skipped
here=$(dirname "$(realpath "$0")")
set -- "${1:-$here/../build/release/trireme}" "${2:-mpirun}"
command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null || { echo "skipped: strace is missing, or may not trace"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: Python is missing"; exit 77; }
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none TRIREME_THREADS=1
source "$here/e2e/functions.sh"

make_corpus corpus 1
train=(train --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --data-path corpus.h5
  --global-batch-size 4 --lr 0.01 --eval-iters 0)
calls=write,pwrite64,writev,pwritev,pwritev2,open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir
calls+=,link,linkat,symlink,symlinkat,ftruncate,truncate,fallocate,fsync,fdatasync,lseek,copy_file_range,sendfile,io_submit,io_uring_setup

# A state is accepted if all checkpoints in it are complete, the announced one or a later one among them. Before the first
# announcement there may be none.
cat >accept <<ACCEPT
#!/bin/bash
said=\$("$trireme" checkpoint verify "\$1" 2>&1)
status=\$?
newest=\$(sed -n 's/.* is complete: step \([0-9]*\),.*/\1/p' <<<"\$said" | sort -n | tail -1)
[ \$status -eq 0 ] && [ "\$newest" -ge "\$2" ] && exit 0
[ \$status -eq 3 ] && [ "\$2" -lt 0 ] && grep -q 'there is no checkpoint' <<<"\$said" && exit 0
echo "exit status \$status: \$said"
ls -R "\$1"
exit 1
ACCEPT

# An export is accepted if a second one completes it: then it is equal to one that nothing disturbed. What is announced as
# complete, or can be imported, is equal already. The model card names its folder; its lock may be left.
cat >accept_export <<ACCEPT
#!/bin/bash
same() { diff -r --exclude=README.md --exclude='.lock*' "$PWD/exported" "\$1" >&2; }
if [ "\$2" -ge 0 ] || "$trireme" checkpoint import --input "\$1" --output "\$1.imported" >/dev/null 2>&1; then
  rm -rf "\$1.imported"
  cmp -s "$PWD/exported/model.safetensors" "\$1/model.safetensors" || { echo "it is not as it should be"; ls -R "\$1"; exit 1; }
fi
[ "\$2" -lt 0 ] || same "\$1" || { echo "it was announced, and files differ"; ls -R "\$1"; exit 1; }
"$trireme" checkpoint export --load "$PWD/source" --output "\$1" 2>&1 || exit 1
same "\$1" || { echo "a second export leaves other files"; ls -R "\$1"; exit 1; }
ACCEPT
chmod +x accept accept_export

# record COMMAND...: runs the command, which fills the folder `saved`, and traces its calls.
record() {
  rm -rf saved
  mkdir saved
  strace -f -y -xx -s 100000000 -e trace=$calls -e signal=none -o trace "$@" >out 2>err || failed "the run: $*"
}
states() { python3 "$here/crash_states.py" trace "$PWD/saved" "$1" "${SEED:-0}" "$2"; }

saved='saved step (\d+) in'
record "$trireme" "${train[@]}" --train-iters 3 --save saved --save-interval 1 --keep-last 2
check "saves of one rank" states "$saved" ./accept
sed -i '/fsync(/d' trace
check "without synchronisation of files and folders they would be lost" eval '! states "$saved" ./accept >out'

record "$trireme" "${train[@]}" --train-iters 3 --save saved --save-interval 1 --keep-last 1 --async-save
check "saves while training goes on" states "$saved" ./accept
record "$mpiexec" -n 2 "$trireme" "${train[@]}" --train-iters 2 --save saved --save-interval 1 --keep-last 1 --use-distributed-optimizer
check "saves of two ranks" states "$saved" ./accept

"$trireme" "${train[@]}" --train-iters 2 --save source --save-interval 1 >out 2>err || failed "a run to take checkpoints from"
record "$trireme" checkpoint reshard --load source --save saved --tp 2
check "a checkpoint that is rewritten for another grid" states 'step (\d+) in .* read back' ./accept
"$trireme" checkpoint export --load source --output exported >out 2>err || failed "an export"
record "$trireme" checkpoint import --input exported --output saved
check "an import" states "$saved" ./accept
record "$trireme" checkpoint export --load source --output saved
check "an export" states '(\d+) files? of weights written' ./accept_export
