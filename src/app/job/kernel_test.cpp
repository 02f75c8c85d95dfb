#include "src/app/job/kernel_test.hpp"

#include "mpi/error.hpp"
#include "src/base/log.hpp"
#include "src/base/thread_pool.hpp"
#include "src/base/timer.hpp"
#include "src/selftest/startup.hpp"

namespace trireme::app {

void test_kernels(Job& job, DType dtype, const DeviceOptions& device, const parallel::Fp8Options& fp8) {
  if (job.backend->memory_is_host() || job.tested_kernels == dtype) return;
  const Timer timer;
  std::vector<std::string> warnings;
  collectively(*job.world, [&] {
    const std::unique_ptr<Backend> reference =
        make_backend(BackendChoice::cpu, default_thread_count(job.node.ranks_sharing_cores));
    const bool by_blocks = fp8.recipe == parallel::Fp8Recipe::blockwise;
    warnings = selftest::test_at_start(*job.backend, *reference,
                                       {.dtype = dtype,
                                        .allow_tf32 = device.allow_tf32,
                                        .fp8 = {.whole = fp8.used && !by_blocks, .blocks = fp8.used && by_blocks},
                                        .where = mpi::this_rank_and_host()});
  });
  for (const std::string& warning : warnings) log::warn("{}", warning);
  log::info("the kernels agree with the CPU's in {}, tested in {:.1f} s", name_of(dtype), timer.elapsed_s());
  job.tested_kernels = dtype;
}

}  // namespace trireme::app
