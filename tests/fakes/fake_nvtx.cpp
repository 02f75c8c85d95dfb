// A profiler that NVTX finds in the program itself (nvtx3/nvtxDetail/nvtxInit.h, static injection): it writes the
// ranges to the log of the fake CUDA runtime.
#include <fmt/format.h>

#include <cstdint>

// Declared here for the header, which else defines it weakly: a function that takes NVTX's table of tables.
extern "C" {
extern int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(std::uint32_t));
}
#define NVTX_STATIC_INJECTION_IMPL
#include <nvtx3/nvToolsExt.h>

#include "tests/fakes/fake_cuda.hpp"

namespace {

int push(const char* name) {
  fake_cuda::note(fmt::format("nvtxRangePush {}", name));
  return 0;
}

int pop() {
  fake_cuda::note("nvtxRangePop");
  return 0;
}

int initialise(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // namespace

int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(std::uint32_t)) = initialise;
