#include "src/app/commands/checkpoint/import_input.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "io/huggingface/config_json.hpp"
#include "io/huggingface/special_tokens_json.hpp"
#include "io/huggingface/tokenizer_json.hpp"
#include "io/llmc/llmc_source.hpp"
#include "io/megatron/megatron_checkpoint.hpp"
#include "io/posix/folder.hpp"
#include "io/safetensors/safetensors_source.hpp"
#include "io/torch/torch_weights.hpp"
#include "src/app/job/task_classes.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/data/tokenizer/wordpiece_tokenizer.hpp"
#include "src/exchange/fused_experts.hpp"
#include "src/exchange/llmc.hpp"
#include "src/exchange/model_class.hpp"

namespace trireme::app {
namespace {

std::string folder_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == file.npos ? "." : file.substr(0, slash);
}

/// Reads the tokenizer in a folder. Null if there is none, or it is not wanted.
std::unique_ptr<data::Tokenizer> tokenizer_in(const std::string& folder, const ImportOptions& options) {
  if (options.without_tokenizer) return nullptr;
  try {
    return io::read_tokenizer_of(folder, options.end_of_document);
  } catch (const DataError& error) {
    throw DataError("{}. Try --no-tokenizer, which takes ids as they are", error.what());
  }
}

/// Sets the number of tokens, of which the tensors have `rows`.
void set_vocabulary(ImportInput& result, std::int64_t vocabulary, std::int64_t rows, const ImportOptions& options) {
  TRIREME_CHECK(vocabulary <= rows, ConfigError, "--vocab-size {} is more than the {} tokens of {}", vocabulary, rows,
                options.input);
  result.config.vocabulary = vocabulary;
  result.attributes.put("import.vocabulary", rows);
}

void set_origin(ImportInput& result, const char* format, std::string_view model_class) {
  result.attributes.put("import.format", format);
  result.attributes.put("import.class", model_class);
}

/// Notes the parts of a model that no tensor has, and the tensors that no model here has.
void note_parts(const exchange::ModelClass& model_class, ImportInput& result) {
  std::set<std::string> parts;
  for (const exchange::MappedParameter& parameter : result.map.parameters) {
    if (parameter.is_initial) parts.insert(parameter.name.substr(0, parameter.name.find('.')));
  }
  if (!parts.empty()) {
    result.notes.push_back(fmt::format("{} lacks parts of a pretrained BERT, which get initial weights: {}",
                                       model_class.name, fmt::join(parts, ", ")));
  }
  std::vector<std::string_view> left_out;
  std::ranges::copy_if(model_class.left_out, std::back_inserter(left_out), [&](std::string_view name) {
    return std::ranges::count(result.source->tensors(), name, &exchange::ForeignTensor::name) > 0;
  });
  if (!left_out.empty()) {
    result.notes.push_back(fmt::format("tensors of {} that no model here has are left out: {}", model_class.name,
                                       fmt::join(left_out, ", ")));
  }
}

/// Returns the number of ids without those that BERT's tokenizer adds to its vocabulary.
std::int64_t own_ids(const data::Tokenizer& tokenizer) {
  const std::int64_t all = tokenizer.vocabulary_size();
  if (tokenizer.name() != "wordpiece") return data::needed_ids(tokenizer.name(), tokenizer.payload(), all);
  std::vector<std::string> tokens = data::wordpiece_from_payload(tokenizer.payload()).tokens;
  while (tokens.back() == "[BOS]" || tokens.back() == "[EOS]") tokens.pop_back();
  return std::ssize(tokens);
}

/// Returns the special ids of config.json that are in the vocabulary.
data::SpecialTokens special_ids_of(const io::HuggingFaceModel& model) {
  const auto id_of = [&](std::optional<std::int64_t> id) {
    const bool is_token = id && *id < model.config.vocabulary;
    return is_token ? std::optional(static_cast<std::int32_t>(*id)) : std::nullopt;
  };
  data::SpecialTokens special{.bos = id_of(model.bos), .pad = id_of(model.pad)};
  for (const std::int64_t end : model.ends) {
    if (const auto id = id_of(end)) special.stops.push_back(*id);
  }
  return special;
}

}  // namespace

ImportInput open_huggingface(const ImportOptions& options) {
  ImportInput result;
  const std::string& input = options.input;
  TRIREME_CHECK(io::is_there(input), DataError, "there is no {}", input);
  const std::string folder = io::is_folder(input + "/.") ? input : folder_of(input);
  const io::HuggingFaceModel model = io::read_config_json(folder + "/config.json");
  std::unique_ptr<exchange::TensorSource> source;
  if (io::has_torch_weights(input)) {
    source = io::open_torch_weights(input);
  } else {
    source = std::make_unique<io::SafetensorsSource>(input);
  }
  result.source = exchange::with_single_experts(std::move(source));
  result.config = model.config;
  result.tokenizer = tokenizer_in(folder, options);
  result.special = special_ids_of(model);
  if (!result.tokenizer) io::read_generation_config(folder, model.config.vocabulary, result.special);

  model::ModelConfig& config = result.config;
  exchange::take_modules(model.ahead_depths, *result.source, config);
  const std::int64_t rows = config.vocabulary;
  set_vocabulary(result, options.vocabulary.value_or(rows), rows, options);
  const exchange::TokenRows token_rows(rows, config.vocabulary);
  if (config.is_bert()) result.attributes.put("import.vocabulary", config.vocabulary);  // an export has as many
  if (config.is_bert() && result.tokenizer) {
    const std::int64_t own = own_ids(*result.tokenizer);
    TRIREME_CHECK(own <= config.vocabulary || !options.vocabulary, ConfigError,
                  "--vocab-size {} is less than the {} tokens of the tokenizer beside {}", config.vocabulary, own,
                  input);
    // The tokenizer adds [BOS] and [EOS]; one of more tokens than the model is refused later.
    if (own <= config.vocabulary) config.vocabulary = std::max(config.vocabulary, result.tokenizer->vocabulary_size());
  }
  const auto map_as = [&](const exchange::ModelClass& model_class) {
    result.rules.other_names = [&model_class](const std::string& name) {
      return exchange::other_names(model_class, name);
    };
    result.rules.is_ignored = [&left_out = model_class.left_out](const std::string& name) {
      return exchange::is_buffer(name) || std::ranges::find(left_out, name) != left_out.end();
    };
    const exchange::TensorFinder finder(*result.source, result.rules);
    result.map = exchange::tensor_map(
        model_class, config,
        {.rotary = model.rotary, .vocabulary_rows = token_rows, .has_tensor = [&](const std::string& name) {
           return finder.find(name).has_value();
         }});
    set_origin(result, "huggingface", model_class.exported_as.empty() ? model_class.name : model_class.exported_as);
  };
  for (const model::Field& field : model::fields()) {  // by them --use-checkpoint-args trains
    if (field.option.ends_with("-dropout")) result.attributes.put(field.key(), field.text(model.config));
  }
  if (!model.labels.empty()) {
    result.attributes.put(class_names_attribute, fmt::format("{}", fmt::join(model.labels, "\n")));
  }
  if (!model.model_class->fuller.empty()) {
    map_as(exchange::model_class_from(model.model_class->fuller));
    try {
      exchange::match(result.map, *result.source, result.rules);
      return result;
    } catch (const DataError&) {  // the files have the tensors of their own class
    }
  }
  map_as(*model.model_class);
  note_parts(*model.model_class, result);
  return result;
}

ImportInput open_llmc(const ImportOptions& options) {
  ImportInput result;
  auto source = std::make_unique<io::LlmcSource>(options.input);
  const std::int64_t rows = source->padded_vocabulary();
  result.config = source->config();
  set_vocabulary(result, options.vocabulary.value_or(result.config.vocabulary), rows, options);
  result.tokenizer = tokenizer_in(folder_of(options.input), options);
  result.map = exchange::llmc_tensor_map(result.config, rows);
  result.source = std::move(source);
  set_origin(result, "llm.c", "gpt2");
  return result;
}

ImportInput open_megatron(const ImportOptions& options) {
  ImportInput result;
  io::MegatronCheckpoint checkpoint = io::open_megatron_checkpoint(options.input);
  result.config = checkpoint.model.config;
  result.tokenizer = tokenizer_in(options.input, options);
  // Only newer versions record the true number of tokens. Otherwise it is the tokenizer's, or the option's.
  const bool is_of_tokenizer = checkpoint.model.vocabulary_is_padded && result.tokenizer;
  const std::int64_t known = is_of_tokenizer ? result.tokenizer->vocabulary_size() : result.config.vocabulary;
  set_vocabulary(result, options.vocabulary.value_or(known), checkpoint.layout.vocabulary_rows, options);
  if (checkpoint.model.has_two_gelus) {
    log::info(
        "the head of masked tokens had the exact GELU, the layers its tanh approximation; here both have the latter, "
        "which differs by at most 0.0005");
  }
  result.map = exchange::megatron_tensor_map(result.config, checkpoint.layout);
  result.rules.other_names = exchange::megatron_other_names;
  result.rules.is_ignored = [](const std::string& name) { return exchange::is_megatron_buffer(name); };
  result.source = std::move(checkpoint.source);
  set_origin(result, "megatron", result.config.is_bert() ? "bert" : "gpt");
  return result;
}

}  // namespace trireme::app
