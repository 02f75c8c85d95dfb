from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Trireme(CMakePackage, CudaPackage):
    """Trireme trains GPT-2, Llama and BERT models with tensor, pipeline, context and data
    parallelism, on NVIDIA GPUs by CUDA and NCCL, and on the processor's cores."""

    # There is no address to download from: "spack dev-build" takes the sources at hand.
    version("0.2.0")

    variant("tests", default=False, description="Build the tests, for ctest in the build folder")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    generator("ninja")

    depends_on("mpi@3:")  # tried with Open MPI alone
    depends_on("hdf5@1.10:~mpi")
    depends_on("openblas")  # threads=none will do: the program has threads of its own
    depends_on("onednn@2.5: cpu_runtime=omp")
    depends_on("boost@1.74:+program_options")
    depends_on("nlohmann-json")
    depends_on("xxhash")
    depends_on("bzip2")
    depends_on("oniguruma")
    depends_on("simdjson")
    depends_on("utf8proc+shared")  # the static one is not position-independent
    depends_on("xz")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("spdlog")
    depends_on("fmt")
    depends_on("numactl", type="run")  # near_gpu.sh of the batch files

    depends_on("cuda@12.4:", when="+cuda")
    depends_on("nccl@2.19:", when="+cuda")

    with when("+tests"):
        depends_on("googletest+gmock")

    conflicts("%gcc@:11", msg="C++20 needs GCC 12 or newer")
    conflicts("cuda_arch=none", when="+cuda", msg="Name the GPUs: cuda_arch=80, 90 or both")
    for gpu in CudaPackage.cuda_arch_values:
        depends_on(f"nccl cuda_arch={gpu}", when=f"+cuda cuda_arch={gpu}")
        if gpu.isdigit() and int(gpu) < 80:
            conflicts(f"cuda_arch={gpu}", when="+cuda", msg="GPUs before Ampere are too old")

    sanity_check_is_file = ["bin/trireme"]

    def cmake_args(self):
        args = [
            # Spack's compiler wrapper gives -march for the target of the spec.
            self.define("TRIREME_MARCH", ""),
            self.define_from_variant("TRIREME_CUDA", "cuda"),
            self.define_from_variant("TRIREME_TESTS", "tests"),
            self.define("TRIREME_BENCHMARKS", False),
        ]
        if self.spec.satisfies("+cuda"):
            architectures = self.spec.variants["cuda_arch"].value
            args.append(self.define("TRIREME_CUDA_ARCHITECTURES", architectures))
        return args

    def test_version(self):
        """the installed program prints its version"""
        trireme = which(self.prefix.bin.trireme)
        assert str(self.spec.version) in trireme("--version", output=str.split, error=str.split)
