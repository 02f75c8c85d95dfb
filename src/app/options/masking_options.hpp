#pragma once

#include "src/app/options/options.hpp"

namespace trireme::app {

/// Options of BERT's samples.
struct MaskingOptions {
  double mask_probability = 0.15;
  double short_sequence_probability = 0.1;

  void declare(Options& options);
};

}  // namespace trireme::app
