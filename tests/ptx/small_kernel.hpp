#pragma once

#include <fmt/format.h>

#include "tests/ptx/module.hpp"
#include "tests/ptx/warp.hpp"

namespace trireme::ptx {

/// Declares the dynamic shared memory, for the head of a kernel.
inline constexpr const char* memory = ".extern .shared .align 16 .b8 memory[];";

/// A kernel in PTX written by hand. Its parameters are the addresses of x and y, in %rd1 and %rd2; the number of the
/// thread is in %r1. `head` precedes the kernel, of blocks of at most `max_threads`.
inline std::string small_kernel(const std::string& body, const std::string& head = "", int max_threads = 64) {
  return fmt::format(R"(.version 8.0
.target sm_90
.address_size 64
{}
.visible .entry k(.param .u64 k_x, .param .u64 k_y)
.maxntid {}, 1, 1
{{
.reg .pred %p<30>; .reg .b16 %rs<30>; .reg .b32 %r<30>; .reg .f32 %f<40>; .reg .b64 %rd<30>; .reg .f64 %fd<30>;
ld.param.u64 %rd1, [k_x];
ld.param.u64 %rd2, [k_y];
mov.u32 %r1, %tid.x;
{}
ret;
}}
)",
                     head, max_threads, body);
}

/// Runs it with one block, on 64-bit numbers. Only x and y may be accessed. Returns y.
inline std::vector<std::uint64_t> run_small(const std::string& text, const std::vector<std::uint64_t>& x,
                                            std::size_t size_of_y, int threads = warp_size,
                                            std::size_t shared_bytes = 0) {
  Module module(text);
  const Kernel& kernel = module.kernel("k");
  std::vector<std::uint64_t> y(size_of_y);
  const void* const from = x.data();
  const void* const to = y.data();
  const void* const arguments[] = {&from, &to};
  const auto region = [](const std::vector<std::uint64_t>& memory) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    return Region{begin, begin + memory.size() * sizeof(memory[0])};
  };
  run(kernel, {1, threads, shared_bytes, pack_parameters(kernel, arguments)}, [&](std::uintptr_t address) -> Region {
    for (const Region& known : {region(x), region(y)}) {
      if (known.contains(address, 1)) return known;
    }
    const auto* global = module.global_at(address);
    if (global == nullptr) return {};
    const auto begin = reinterpret_cast<std::uintptr_t>(global->data());
    return {begin, begin + global->size()};
  });
  return y;
}

}  // namespace trireme::ptx
