#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/base/attributes.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/exchange/import.hpp"

namespace trireme::app {

struct ImportOptions {
  std::string input;
  std::string end_of_document;             ///< token of a tokenizer.json; empty: by its name
  bool without_tokenizer = false;          ///< takes ids made elsewhere
  std::optional<std::int64_t> vocabulary;  ///< true number of tokens; further rows are padding
};

/// A checkpoint of another program, ready for `exchange::import_weights`. A further format has a function that returns
/// one, and a name in the table of import_command.cpp.
struct ImportInput {
  std::unique_ptr<exchange::TensorSource> source;
  model::ModelConfig config;
  exchange::TensorMap map;
  exchange::NameRules rules = {};
  std::unique_ptr<data::Tokenizer> tokenizer;  ///< null: none is there
  std::optional<std::int64_t> end_of_text;     ///< id that ends documents where there is no tokenizer
  Attributes attributes = {};                  ///< further attributes of the checkpoint, "import.*"
};

/// Opens a folder or file with the files of Hugging Face's transformers. On each rank; does not communicate.
ImportInput open_huggingface(const ImportOptions& options);
/// Opens a model file of llm.c, with the tokenizer's files of transformers beside it. Likewise.
ImportInput open_llmc(const ImportOptions& options);
/// Opens a checkpoint of Megatron-LM, with the tokenizer's files of transformers in its folder. Likewise.
ImportInput open_megatron(const ImportOptions& options);

/// Content of the checkpoint beside tensors: that of a run which has done nothing yet. The tokenizer must be there.
checkpoint::RunDescription description_of(const ImportInput& input, DType dtype);

}  // namespace trireme::app
