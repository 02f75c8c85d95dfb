# Sourced: the environment of the programs in $folder, a build folder or what tests/gpu.sh --pack made of one, on a machine
# with a GPU.

# PyTorch finds its own libraries: for it, TRIREME_OUTSIDE_LIBRARIES is what LD_LIBRARY_PATH was when this was sourced first.
# One script that has sourced it may run another that does.
export TRIREME_OUTSIDE_LIBRARIES=${TRIREME_OUTSIDE_LIBRARIES-${LD_LIBRARY_PATH:-}}
LD_LIBRARY_PATH=$TRIREME_OUTSIDE_LIBRARIES
# CUDA's libraries: the toolkit's, or those of Python's packages.
wheels=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
for place in "$folder/lib" "${CUDA_HOME:-/usr/local/cuda}/lib64" ${wheels:+"$wheels"/*/lib}; do
  [ -d "$place" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place
done
export LD_LIBRARY_PATH
if [ -x "$folder/mpi/bin/mpirun" ]; then
  mpi=$folder/mpi
  export PATH=$mpi/bin:$PATH OPAL_PREFIX=$mpi OPAL_BINDIR=$mpi/bin OPAL_LIBDIR=$folder/lib OPAL_PKGLIBDIR=$mpi/plugins
  export OPAL_DATADIR=$mpi/share OPAL_PKGDATADIR=$mpi/share/openmpi OPAL_SYSCONFDIR=$mpi/etc
  export PMIX_INSTALL_PREFIX=$mpi PMIX_LIBDIR=$folder/lib PMIX_PKGLIBDIR=$mpi/pmix
  export OMPI_MCA_mca_base_component_path=$mpi/plugins OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=vader,self
  export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers may forbid it
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none
