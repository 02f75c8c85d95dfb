#include "src/app/options/masking_options.hpp"

namespace trireme::app {

void MaskingOptions::declare(Options& options) {
  options.add("mask-prob", &mask_probability, "P", "BERT: fraction of a sample's tokens that are masked.",
              between(0, 1));
  options.add("short-seq-prob", &short_sequence_probability, "P",
              "BERT: probability of a sample that is shorter than the sequence, rounded to 1/N.", between(0, 1));
}

}  // namespace trireme::app
