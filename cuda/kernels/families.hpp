#pragma once

#include <functional>
#include <memory>

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/cross_entropy.hpp"
#include "src/backend/kernels/elementwise.hpp"
#include "src/backend/kernels/embedding.hpp"
#include "src/backend/kernels/norm.hpp"
#include "src/backend/kernels/optimizer.hpp"
#include "src/backend/kernels/reduce.hpp"
#include "src/backend/kernels/rotary.hpp"
#include "src/tensor/memory.hpp"

namespace trireme::cuda {

/// Gives memory for what the stream runs from now until the buffer is dropped.
using Scratch = std::function<Buffer(Stream& stream, std::size_t size_bytes)>;

// The hand-written kernels, by family.
std::unique_ptr<ElementwiseKernels> make_elementwise(Scratch scratch);
std::unique_ptr<NormKernels> make_norm(Scratch scratch);
std::unique_ptr<EmbeddingKernels> make_embedding();
std::unique_ptr<CrossEntropyKernels> make_cross_entropy();
std::unique_ptr<OptimizerKernels> make_optimizer();
std::unique_ptr<ReduceKernels> make_reduce(Scratch scratch);
std::unique_ptr<RotaryKernels> make_rotary();
/// `max_shared_bytes` is the shared memory that a block can have.
std::unique_ptr<AttentionKernels> make_attention(std::size_t max_shared_bytes);

}  // namespace trireme::cuda
