#pragma once

#include <string>

#include "bench/kernels/gpu_measure.hpp"

namespace trireme::bench {

/// Times the kernels that route n tokens of h elements to two of 64 experts, and gather, weigh and sum their rows.
void measure_experts(GpuMeasure& bench, const std::string& model, std::int64_t n, std::int64_t h);

}  // namespace trireme::bench
