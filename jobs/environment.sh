# Sourced by the batch files. Cluster-specific settings: change them once, in your copy.

# Modules: the compiler's run time, MPI, HDF5, OpenBLAS and oneDNN that the program was built with, and the program.
# module load openmpi hdf5 trireme

# The program: the one on PATH (the modulefile puts it there), or the one built beside these files.
if [ -z "${TRIREME:-}" ]; then
  TRIREME=$(command -v trireme || echo "$(dirname "${BASH_SOURCE[0]}")/../build/release/trireme")
fi
[ -x "$TRIREME" ] || { echo "No program at $TRIREME. Build it, or set TRIREME." >&2; exit 4; }

# Launcher of ranks inside a job; srun --mpi=list shows what SLURM was built with. PMIx ends all ranks within seconds once one has
# died. Once one has exited, the others get a minute to follow: enough after a save. near_gpu.sh binds each rank to the cores and
# memory near its GPU, so SLURM's binding is off.
LAUNCH=(srun --mpi=pmix --export=ALL --kill-on-bad-exit=0 --wait=60 --cpu-bind=none
  ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} "$(dirname "${BASH_SOURCE[0]}")/near_gpu.sh")

# place NODE...: sets PLACE to the launcher's options for as many ranks on each of these nodes as the job has on its own. For
# Open MPI's mpirun: PLACE=(--host NODE:RANKS,...). Without --overlap (SLURM 20.11 or later) they would wait, sometimes for
# minutes, until SLURM has given up the attempt before on a lost node.
place() {
  local IFS=,
  PLACE=(--overlap --nodes=$# --ntasks=$(($# * SLURM_NTASKS / SLURM_JOB_NUM_NODES)) --nodelist="$*")
}

# A machine without SLURM: RANKS ranks, or one for each GPU, or for each core.
if [ -z "${SLURM_JOB_ID:-}" ]; then
  RANKS=${RANKS:-$({ nvidia-smi -L || true; } 2>/dev/null | wc -l)}
  LAUNCH=(mpirun)
  [ "$RANKS" = 0 ] || LAUNCH+=(-n "$RANKS")
  [ ! -e /dev/nvidiactl ] || LAUNCH+=(--bind-to none "$(dirname "${BASH_SOURCE[0]}")/near_gpu.sh")
fi

# Open MPI: if a node has a separate network for MPI, name it, so no other is tried.
# export OMPI_MCA_btl_tcp_if_include=ib0
