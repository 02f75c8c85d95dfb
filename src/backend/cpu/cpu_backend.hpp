#pragma once

#include "src/backend/backend.hpp"
#include "src/base/thread_pool.hpp"

namespace trireme::cpu {

/// The CPU backend: host memory, one pool of threads, kernels that run within the call. In fp64 it is the reference for
/// every other backend.
std::unique_ptr<Backend> make_backend(int threads);

// The kernel families, each in the file of its name.
std::unique_ptr<GemmKernels> make_gemm(ThreadPool& pool);
std::unique_ptr<NormKernels> make_norm(ThreadPool& pool);
std::unique_ptr<AttentionKernels> make_attention(ThreadPool& pool);
std::unique_ptr<ElementwiseKernels> make_elementwise(ThreadPool& pool);
std::unique_ptr<EmbeddingKernels> make_embedding(ThreadPool& pool);
std::unique_ptr<CrossEntropyKernels> make_cross_entropy(ThreadPool& pool);
std::unique_ptr<OptimizerKernels> make_optimizer(ThreadPool& pool);
std::unique_ptr<ReduceKernels> make_reduce(ThreadPool& pool);
std::unique_ptr<RotaryKernels> make_rotary(ThreadPool& pool);
std::unique_ptr<ExpertKernels> make_experts(ThreadPool& pool);

}  // namespace trireme::cpu
