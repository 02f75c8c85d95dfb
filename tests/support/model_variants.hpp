#pragma once

#include <string>
#include <vector>

#include "src/model/gpt_config.hpp"

namespace trireme::test {

/// GPT-2, each of the options that a Llama has instead, alone, and a Llama. For models of an even number of heads.
struct ModelVariant {
  std::string name;
  void (*apply)(model::GptConfig&);
};

inline const std::vector<ModelVariant>& model_variants() {
  using model::GptConfig;
  static const std::vector<ModelVariant> list = {
      {"GPT-2", [](GptConfig&) {}},
      {"RMSNorm", [](GptConfig& c) { c.normalization = model::Normalization::rms_norm; }},
      {"rope", [](GptConfig& c) { c.position_embedding = model::PositionEmbedding::rope; }},
      {"rope of half a head",
       [](GptConfig& c) {
         c.position_embedding = model::PositionEmbedding::rope;
         c.rotary_percent = 0.5;
         c.rotary_base = 100;
       }},
      {"SwiGLU", [](GptConfig& c) { c.swiglu = true; }},
      {"two query groups", [](GptConfig& c) { c.query_groups = 2; }},
      {"one query group", [](GptConfig& c) { c.query_groups = 1; }},
      {"untied output", [](GptConfig& c) { c.tied_output = false; }},
      {"no linear bias", [](GptConfig& c) { c.linear_bias = false; }},
      {"Llama",
       [](GptConfig& c) {
         c.normalization = model::Normalization::rms_norm;
         c.position_embedding = model::PositionEmbedding::rope;
         c.swiglu = true;
         c.query_groups = 2;
         c.tied_output = false;
         c.linear_bias = false;
       }},
  };
  return list;
}

}  // namespace trireme::test
