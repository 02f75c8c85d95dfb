#include "src/app/run_config/device_options.hpp"

#include <cstdlib>
#include <utility>

namespace trireme::app {
namespace {

/// Returns the file in the XDG cache folder; empty if the user has no home.
std::string default_gemm_cache() {
  const char* caches = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (caches != nullptr && *caches == '/') return std::string(caches) + "/trireme/gemm_algorithms";
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/trireme/gemm_algorithms";
  return "";
}

}  // namespace

void declare_startup_timeout(Options& options, double* minutes) {
  options.add("startup-timeout-minutes", minutes, "X",
              "End the job with exit code 7 if not all ranks have reached MPI_Init after this time; 0: wait "
              "indefinitely.",
              at_least(0));
}

void declare_no_selftest(Options& options, bool* no_selftest) {
  options.add_flag("no-selftest", no_selftest,
                   "GPU: skip the comparison of the kernels with the CPU's at startup, which takes about two seconds.");
}

double startup_timeout_minutes(const std::vector<std::string>& arguments) {
  double minutes = mpi::default_startup_timeout_minutes;
  Options options("trireme", "");
  declare_startup_timeout(options, &minutes);
  options.parse_known(arguments);
  return minutes;
}

void DeviceOptions::declare(Options& options) {
  options.section("Device");
  options.add_choice("backend", &backend,
                     {{"auto", BackendChoice::automatic}, {"cpu", BackendChoice::cpu}, {"cuda", BackendChoice::cuda}},
                     "auto: the GPU if every rank can use one, the CPU if none can.");
  options.add_choice<std::optional<DeviceTransport>>(
      "communicator", &communicator, {{"nccl", DeviceTransport::nccl}, {"staged", DeviceTransport::staged}},
      "Communication between GPUs: nccl (the default), or staged through host memory by MPI, which is slow and lets "
      "several ranks share a GPU.");
  options.add("distributed-timeout-minutes", &timeout_minutes, "X",
              "End the job with exit code 7 after a rank has waited this long for others, and name those that do not "
              "respond; 0: wait indefinitely.",
              at_least(0));
  declare_startup_timeout(options, &startup_timeout_minutes);
  options.add_flag("deterministic-mode", &deterministic,
                   "Compute bitwise the same results in every run on one grid, on GPUs too: GEMMs use cuBLASLt's first "
                   "working algorithm instead of the fastest. The CPU is always deterministic.");
  options.add_flag("allow-tf32", &allow_tf32, "GPU: let fp32 GEMMs round their inputs to TF32 (10 bits).");
  options.add("gemm-cache", &gemm_cache, "FILE",
              "GPU: file that caches the fastest algorithm of each GEMM, or 'none'; default trireme/gemm_algorithms in "
              "the user's cache folder.");
  options.add_flag("check-launches", &check_launches,
                   "GPU: wait for every kernel, so that an error names the kernel that caused it; slow.");
}

BackendOptions DeviceOptions::backend_options(int world_rank, int local_rank) const {
  BackendOptions options;
  options.world_rank = world_rank;
  options.local_rank = local_rank;
  options.check_launches = check_launches;
  options.allow_reduced_precision = allow_tf32;
  options.deterministic = deterministic;
  options.max_wait_s = 60 * timeout_minutes;
  if (gemm_cache != "none") options.algorithm_cache = gemm_cache.empty() ? default_gemm_cache() : gemm_cache;
  return options;
}

void DeviceOptions::check(const Options& options, const Backend& backend, const std::string& reason) const {
  if (backend.supports(Capability::algorithm_cache)) {
    TRIREME_CHECK(!deterministic || gemm_cache.empty() || gemm_cache == "none", ConfigError,
                  "--gemm-cache {} and --deterministic-mode exclude each other: the second benchmarks no algorithms",
                  gemm_cache);
  }
  std::string idle;
  for (const auto& [name, capability] : {std::pair{"communicator", Capability::device_communicators},
                                         {"use-nccl-ub", Capability::device_communicators},
                                         {"allow-tf32", Capability::reduced_precision},
                                         {"gemm-cache", Capability::algorithm_cache},
                                         {"check-launches", Capability::launch_checks},
                                         {"cuda-graphs", Capability::graphs},
                                         {"profile", Capability::profiler}}) {
    if (options.given(name) && !backend.supports(capability))
      idle += (idle.empty() ? "--" : ", --") + std::string(name);
  }
  TRIREME_CHECK(idle.empty(), ConfigError, "{}: for GPUs only, but this job runs on the backend {} ({}); leave out {}",
                idle, backend.name(), reason, idle.find(',') == std::string::npos ? "the option" : "these options");
}

void check_training_type(const Backend& backend, DType dtype, const parallel::Fp8Options& fp8) {
  TRIREME_CHECK(backend.supports(Capability::fp64_training) || dtype != DType::fp64, ConfigError,
                "--dtype fp64: the CUDA backend computes in fp32, bf16 and fp16; use --backend cpu");
  TRIREME_CHECK(backend.supports(Capability::fp8) || !fp8.used, ConfigError,
                "--fp8-format: GPUs have products in FP8 from compute capability 8.9 on (L40S, H100), and this is {}; "
                "leave it out, or use --backend cpu",
                backend.description());
  TRIREME_CHECK(backend.supports(Capability::fp8_blocks) || fp8.recipe != parallel::Fp8Recipe::blockwise, ConfigError,
                "--fp8-recipe blockwise needs a GPU of compute capability 9.0 (H100, H200) and cuBLASLt of CUDA 12.9; "
                "use --fp8-recipe delayed, or --backend cpu");
}

}  // namespace trireme::app
