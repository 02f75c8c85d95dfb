#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/exchange/import.hpp"

namespace trireme::app {

struct ImportOptions {
  std::string input;
  std::string adapter;                     ///< folder of PEFT's adapters of the model; empty: none
  std::string end_of_document;             ///< token of a tokenizer.json; empty: a known name
  bool without_tokenizer = false;          ///< accepts ids of an unknown tokenizer
  std::optional<std::int64_t> vocabulary;  ///< true number of tokens; further rows are padding
};

/// A checkpoint of another program, ready for `exchange::import_weights`. Each format has a function that returns one,
/// and a name in the table of import_command.cpp.
struct ImportInput {
  std::unique_ptr<exchange::TensorSource> source;
  model::ModelConfig config;
  exchange::TensorMap map;
  exchange::NameRules rules = {};
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null: there is none
  /// Special ids of the model, for a tokenizer that lacks them or is missing. The first end ends documents if there is
  /// no tokenizer.
  data::SpecialTokens special = {};
  Attributes attributes = {};           ///< further attributes of the checkpoint, "import.*"
  std::vector<std::string> notes = {};  ///< lines of the log, if the tensors match
};

/// Opens a folder or file of Hugging Face's transformers. Called on each rank; does not communicate.
ImportInput open_huggingface(const ImportOptions& options);
/// Likewise for a model file of llm.c, with tokenizer files of transformers beside it.
ImportInput open_llmc(const ImportOptions& options);
/// Likewise for a checkpoint of Megatron-LM, with tokenizer files of transformers in its folder.
ImportInput open_megatron(const ImportOptions& options);

/// Returns the content of the checkpoint besides tensors: that of a run that has not started. Requires a tokenizer.
checkpoint::RunDescription description_of(const ImportInput& input, DType dtype);

}  // namespace trireme::app
