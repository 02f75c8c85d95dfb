#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <set>

/// cuBLASLt for tests without a GPU: computes the documented products on host memory, when the fake CUDA runtime runs
/// the stream. Algorithms are numbers. A call that breaks a documented rule (cublaslt/rules.hpp) ends the program.
namespace fake_cublaslt {

struct Behaviour {
  int algorithms = 3;                            ///< algorithms of every product
  std::set<cublasLtEpilogue_t> cannot_fuse;      ///< epilogues without an algorithm
  std::set<cublasLtEpilogue_t> wrong;            ///< epilogues whose products have a wrong element
  std::uint64_t flipped_rows = 0;                ///< one bit is wrong in every third product of so many rows
  std::uint64_t usable_algorithms = UINT64_MAX;  ///< numbers from here on are refused by cublasLtMatmulAlgoCheck
  std::set<std::uint64_t> refused;               ///< refused by cublasLtMatmul itself
};
Behaviour& behaviour();

/// Last product that was enqueued.
struct Last {
  std::uint64_t algorithm = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* d = nullptr;
  std::int32_t multiprocessors = 0;  ///< the most it may take; 0: all
  std::uint64_t columns = 0;         ///< d's
};
const Last& last();
/// Last search for algorithms.
struct Search {
  int wanted = 0;                            ///< algorithms
  std::array<std::uint32_t, 4> alignment{};  ///< least ones of a, b, c and d, in bytes
  std::uint32_t reduction_schemes = 0;       ///< those allowed
};
const Search& last_search();
/// Products enqueued, and searches for algorithms.
int products();
int searches();
void reset();

}  // namespace fake_cublaslt
