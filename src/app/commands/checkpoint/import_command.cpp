#include <algorithm>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/huggingface/adapter_json.hpp"
#include "io/posix/folder.hpp"
#include "io/safetensors/safetensors_output.hpp"
#include "src/app/commands/checkpoint/import_input.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/task_classes.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/options.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/base/timer.hpp"
#include "src/checkpoint/load.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/model/stage/model_parameters.hpp"

namespace trireme::app {
namespace {

using OpenInput = ImportInput (*)(const ImportOptions&);

/// Formats of other programs.
constexpr Choice<OpenInput> formats[] = {
    {"huggingface", open_huggingface}, {"llm.c", open_llmc}, {"megatron", open_megatron}};

/// Adds the adapters in a folder to a model.
void add_adapter(const std::string& folder, ImportInput& input) {
  const model::LowRankAdapters adapters = io::read_adapter_json(folder + "/" + io::adapter_names.description);
  io::SafetensorsSource tensors(folder + "/" + io::adapter_names.stem + ".safetensors");
  input.source = exchange::with_adapters(std::move(input.source), tensors, adapters, input.map, input.config);
  model::validate(input.config);
}

/// Replaces a missing tokenizer, and checks an existing one.
void settle_tokenizer(const ImportOptions& options, ImportInput& input, bool is_root) {
  const std::int64_t vocabulary = input.config.vocabulary;
  if (!input.tokenizer) {
    std::erase_if(input.special.stops, [&](std::int32_t id) { return id >= vocabulary; });
    const std::int64_t end = input.special.stops.empty() ? vocabulary - 1 : input.special.stops.front();
    input.tokenizer = data::make_null_tokenizer(vocabulary, end);
    for (auto* role : {&input.special.bos, &input.special.pad}) {
      if (*role && **role >= vocabulary) role->reset();
    }
    input.tokenizer->set_special(std::move(input.special));
    if (is_root && !options.without_tokenizer) {
      log::warn("there is no tokenizer beside {}: ids 0 to {} are used as they are, and {} ends documents",
                options.input, vocabulary - 1, end);
    }
  }
  const std::int64_t surplus = input.tokenizer->vocabulary_size() - vocabulary;
  const std::int64_t needed =
      data::needed_ids(input.tokenizer->name(), input.tokenizer->payload(), input.tokenizer->vocabulary_size());
  TRIREME_CHECK(needed <= vocabulary, DataError,
                "the tokenizer beside {} has {} tokens, the model only {}: it is another model's. Try --no-tokenizer",
                options.input, input.tokenizer->vocabulary_size(), vocabulary);
  if (surplus > 0 && is_root) {
    log::info("{} of the tokenizer, from {} on, have no row in the model: text with them is refused",
              counted(surplus, "added token"), vocabulary);
  }
  data::SpecialTokens special = input.tokenizer->special();
  if (!special.stops.empty()) return;
  special.stops = input.special.stops;
  std::erase_if(special.stops, [&](std::int32_t id) { return id >= input.tokenizer->vocabulary_size(); });
  if (special.stops != input.tokenizer->stops()) input.tokenizer->set_special(std::move(special));
}

}  // namespace

checkpoint::RunDescription description_of(const ImportInput& input, DType dtype) {
  checkpoint::RunDescription description;
  Attributes& attributes = description.attributes;
  attributes = attributes_of(input.config);
  attributes.merge(attributes_of(train::SavedState{}));
  attributes.merge(input.attributes);
  put_optimizer_state(attributes, train::OptimizerState::left_out);
  put_dtype(attributes, dtype);
  attributes.put("tokenizer", input.tokenizer->name());
  attributes.put("data.tokenizer", input.tokenizer->digest());
  attributes.put("data.sequence_length", input.config.max_positions);
  description.blobs["tokenizer"] = input.tokenizer->payload();
  return description;
}

int checkpoint_import_command(const CommandLine& line) {
  ImportOptions o;
  std::string output;
  OpenInput open = open_huggingface;
  DType dtype = DType::fp32;
  Options options(
      line.command(),
      "Imports the weights of another program's checkpoint. train --finetune, eval, finetune and generate load the "
      "result on any grid. Under mpirun the ranks share the work; each holds part of a tensor at a time. Run again, "
      "the same command resumes a killed one.");
  options.add("input", &o.input, "DIR|FILE",
              "huggingface: a folder with config.json and model.safetensors or its parts with their index, or such a "
              "file beside config.json. llm.c: a model file of version 3 or 5. Tokenizer files of transformers are "
              "read if present.");
  options.add("output", &output, "DIR", "Folder of checkpoints, in which this one is step 0.");
  options.add("lora-adapter", &o.adapter, "DIR",
              "Folder of adapters of this model in the format of PEFT: adapter_config.json and "
              "adapter_model.safetensors. The checkpoint keeps them apart from the weights.");
  options.add_choice("format", &open, formats, "Format of the input.");
  options.add_choice("dtype", &dtype, training_types,
                     "Type that eval and generate compute in by default. The weights are stored in fp32, or in fp64 "
                     "for fp64.");
  options.add("vocab-size", &o.vocabulary, "N",
              "True number of tokens, if the tensors have further rows as padding; default all rows.",
              between(1, 2147483648.0));
  options.add("eod-token", &o.end_of_document, "TOKEN",
              "Token of tokenizer.json that ends documents; default <|endoftext|>, <|end_of_text|>, </s> or the "
              "eos_token beside it.");
  options.add_flag("no-tokenizer", &o.without_tokenizer,
                   "Ignore the tokenizer's files, if they are of an unsupported kind: the ids are those of an unknown "
                   "tokenizer.");
  options.require({"input", "output"});
  if (!line.read(options)) return 0;

  TRIREME_CHECK(!o.without_tokenizer || o.end_of_document.empty(), ConfigError,
                "--eod-token {} is a token of the tokenizer that --no-tokenizer leaves out", o.end_of_document);
  const auto world = line.environment().make_world();
  check_same_options(*world, options);
  const Timer timer;
  ImportInput input;
  exchange::MatchedTensors tensors;
  checkpoint::RunDescription description;
  std::unique_ptr<io::CheckpointStore> store;
  collectively(*world, [&] {
    input = open(o);
    if (!o.adapter.empty()) add_adapter(o.adapter, input);
    tensors = exchange::match(input.map, *input.source, input.rules);
    for (const std::string& note : input.notes) log::info("{}", note);
    settle_tokenizer(o, input, world->rank() == 0);
    description = description_of(input, dtype);
    store = std::make_unique<io::CheckpointStore>(output);
    if (world->rank() == 0) store->reserve();
    for (const checkpoint::StepEntry& entry : store->steps()) {
      TRIREME_CHECK(entry.step == 0, ConfigError,
                    "{} holds {}, which would be loaded instead of step 0: name another --output", output, entry.name);
    }
  });
  std::string source_digest;
  collectively(*world, [&] {
    if (world->rank() != 0) return;
    source_digest = io::files_digest(o.input);
    if (!o.adapter.empty()) source_digest += " " + io::files_digest(o.adapter);
  });
  exchange::import_weights(*input.source, input.map, tensors, accumulation_type(dtype), *store, *world, description,
                           source_digest);
  const double gigabytes = static_cast<double>(model::parameter_count(input.config)) *
                           static_cast<double>(size_of(accumulation_type(dtype))) / 1e9;
  log::info("{}: {} parameters in {:.1f} s, {:.2f} GB/s, on {}", output, model::parameter_count(input.config),
            timer.elapsed_s(), gigabytes / timer.elapsed_s(), counted(world->size(), "rank"));
  if (input.config.predicts_tokens()) {
    log::info("train it with --load {} --finetune --use-checkpoint-args", shell_word(output));
  } else if (const std::string command = measuring_command(description.attributes, input.config, output);
             !command.empty()) {
    log::info("measure it with {}", command);
  }
  return 0;
}

}  // namespace trireme::app
