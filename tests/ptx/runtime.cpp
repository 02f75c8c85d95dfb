// Launches of the fake CUDA runtime. The host code that nvcc generates for kernels calls these functions.
#include "tests/ptx/runtime.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <zstd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "tests/fakes/fake_cuda.hpp"
#include "tests/fakes/fake_streams.hpp"
#include "tests/ptx/warp.hpp"

namespace trireme::ptx {
namespace {

// The format of fat binaries is not documented. These fields are those of CUDA 12.4 to 13.0.

struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t size_bytes;  // size of the entries after the header
};
constexpr std::uint32_t header_magic = 0xba55ed50;
struct FatEntry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t padded_bytes;
  std::uint32_t compressed_bytes;  // 0: not compressed
};
constexpr std::uint16_t ptx_kind = 1;

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::string decompressed(const std::byte* data, std::size_t size_bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(data, size_bytes);
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    throw PtxError("the PTX of an object is not compressed by zstd. Compile it with -Xfatbin -compress-mode=none");
  }
  std::string text(size, '\0');
  if (ZSTD_isError(ZSTD_decompress(text.data(), text.size(), data, size_bytes)) != 0) {
    throw PtxError("the PTX of an object cannot be decompressed");
  }
  return text;
}

/// Returns the PTX in a fat binary, which nvcc puts into objects. Throws PtxError if it has none.
std::string ptx_of_fat_binary(const void* fat_binary) {
  const auto* at = static_cast<const std::byte*>(fat_binary);
  const auto header = read<FatHeader>(at);
  if (header.magic != header_magic) throw PtxError(fmt::format("not a fat binary: it begins with {:#x}", header.magic));
  at += header.header_bytes;
  for (const std::byte* const end = at + header.size_bytes; at < end;) {
    const auto entry = read<FatEntry>(at);
    const std::byte* const data = at + entry.header_bytes;
    if (entry.kind == ptx_kind) {
      if (entry.compressed_bytes > 0) return decompressed(data, entry.compressed_bytes);
      std::string text(reinterpret_cast<const char*>(data), entry.padded_bytes);
      return text.substr(0, text.find('\0'));
    }
    at = data + entry.padded_bytes;
  }
  throw PtxError("an object of CUDA kernels contains no PTX: compile it for a virtual architecture, too");
}

struct Object {
  const void* fat_binary;
  std::unique_ptr<Module> module;  // null: not yet read
};
/// A kernel of the program; its address is the handle passed by launches.
struct Registered {
  Object* object;
  std::string name;
  std::size_t max_shared_bytes = std::size_t{48} << 10;
  int launches = 0;
};
struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
struct State {
  std::deque<Object> objects;
  std::map<const void*, Registered> kernels;  // by the host's function
  std::vector<Configuration> configurations;  // launches that begin
  std::function<std::string(const std::string&)> edit;
};
State& state() {
  static State the_state;
  return the_state;
}

Module& module_of(Object& object) {
  if (!object.module) {
    std::string text = ptx_of_fat_binary(object.fat_binary);
    object.module = std::make_unique<Module>(state().edit ? state().edit(text) : std::move(text));
  }
  return *object.module;
}

Regions regions_of(const Module& module) {
  return [&module](std::uintptr_t address) -> Region {
    if (const auto [begin, size] = fake_cuda::allocation_at(address); size > 0) return {begin, begin + size};
    const std::vector<std::byte>* global = module.global_at(address);
    if (global == nullptr) return {};
    const auto begin = reinterpret_cast<std::uintptr_t>(global->data());
    return {begin, begin + global->size()};
  };
}

cudaError_t launch(Registered& registered, const Configuration& configuration, void** arguments) {
  FAKE_OUTCOME("cudaLaunchKernel");
  const auto& [grid, block, shared_bytes, stream] = configuration;
  if (grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1) return cudaErrorInvalidConfiguration;
  Module& module = module_of(*registered.object);
  const Kernel& kernel = module.kernel(registered.name);
  if (kernel.shared_bytes + shared_bytes > registered.max_shared_bytes) return cudaErrorInvalidValue;
  // CUDA loads a kernel at its first launch, for which it may wait until the GPU is idle.
  if (registered.launches++ == 0) fake_cuda::run_all();
  Launch launch{grid.x, static_cast<int>(block.x), shared_bytes,
                pack_parameters(kernel, {arguments, kernel.parameters.size()})};
  fake_cuda::enqueue(stream, registered.name,
                     [&kernel, &module, launch = std::move(launch)] { run(kernel, launch, regions_of(module)); });
  return cudaSuccess;
}

}  // namespace

std::vector<std::string> embedded_ptx() {
  std::vector<std::string> texts;
  for (const Object& object : state().objects) texts.push_back(ptx_of_fat_binary(object.fat_binary));
  return texts;
}

void edit_ptx(std::function<std::string(const std::string&)> edit) {
  state().edit = std::move(edit);
  for (Object& object : state().objects) object.module.reset();
}

std::set<std::string> kernels_not_launched() {
  std::set<std::string> names, launched;
  for (const auto& [function, kernel] : state().kernels) (kernel.launches == 0 ? names : launched).insert(kernel.name);
  // A template instantiated in several objects is one kernel.
  for (const std::string& name : launched) names.erase(name);
  return names;
}

}  // namespace trireme::ptx

// Launches alone enqueue kernels.
void fake_cuda::start_kernels_on_streams() {}

using namespace trireme::ptx;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic, version;
    const void* data;
  };
  return reinterpret_cast<void**>(
      &state().objects.emplace_back(Object{static_cast<const Wrapper*>(wrapper)->data, nullptr}));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** object, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  state().kernels.try_emplace(function, Registered{reinterpret_cast<Object*>(object), name});
}
// Variables of the PTX are not seen by the host.
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream) {
  state().configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
  const Configuration latest = state().configurations.back();
  state().configurations.pop_back();
  *grid = latest.grid;
  *block = latest.block;
  *shared_bytes = latest.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = latest.stream;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                             cudaStream_t stream) {
  return launch(state().kernels.at(function), {grid, block, shared_bytes, stream}, arguments);
}
// CUDA 13 looks up a kernel once.
cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  *kernel = &state().kernels.at(function);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                               cudaStream_t stream) {
  return launch(*static_cast<Registered*>(kernel), {grid, block, shared_bytes, stream}, arguments);
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  state().kernels.at(function).max_shared_bytes = static_cast<std::size_t>(value);
  return cudaSuccess;
}

}  // extern "C"
