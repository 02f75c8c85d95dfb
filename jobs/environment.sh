# Sourced by the batch files. Cluster-specific settings: change them once, in your copy.

# Modules: the compiler's run time, MPI, HDF5, OpenBLAS and oneDNN that the program was built with, and the program.
# module load openmpi hdf5 trireme

# The program: the one on PATH (the modulefile puts it there), or the one built beside these files.
if [ -z "${TRIREME:-}" ]; then
  TRIREME=$(command -v trireme || echo "$(dirname "${BASH_SOURCE[0]}")/../build/release/trireme")
fi
[ -x "$TRIREME" ] || { echo "No program at $TRIREME. Build it, or set TRIREME." >&2; exit 4; }

# Launcher of ranks inside a job; srun --mpi=list shows what SLURM was built with. Once one rank has exited, the others
# get a minute to follow: enough after a save, and a dead rank does not block the rest indefinitely. near_gpu.sh binds
# each rank to the cores and memory near its GPU, so SLURM's binding is off.
LAUNCH=(srun --mpi=pmix --kill-on-bad-exit=0 --wait=60 --cpu-bind=none
  ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} "$(dirname "${BASH_SOURCE[0]}")/near_gpu.sh")

# Open MPI: if a node has a separate network for MPI, name it, so no other is tried.
# export OMPI_MCA_btl_tcp_if_include=ib0

# HDF5 locks files; some Lustre and NFS mounts refuse. The program locks the folder it saves to itself.
export HDF5_USE_FILE_LOCKING=${HDF5_USE_FILE_LOCKING:-BEST_EFFORT}
