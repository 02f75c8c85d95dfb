#include <filesystem>
#include <limits>
#include <utility>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/huggingface/adapter_json.hpp"
#include "io/huggingface/config_json.hpp"
#include "io/huggingface/tokenizer_json.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/folder_lock.hpp"
#include "io/safetensors/safetensors_output.hpp"
#include "src/app/commands/commands.hpp"
#include "src/app/job/job.hpp"
#include "src/app/job/saved_model.hpp"
#include "src/app/job/task_classes.hpp"
#include "src/app/options/options.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/base/timer.hpp"
#include "src/exchange/export.hpp"
#include "src/exchange/model_class.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/train/progress.hpp"

namespace trireme::app {
namespace {

struct ExportOptions {
  std::string load;
  std::optional<std::int64_t> step;
  std::string output;
  std::string format = "huggingface";
  std::optional<DType> dtype;
  double max_shard_gb = 5;
  bool adapter = false;

  void declare(Options& options) {
    options.add("load", &load, "DIR", "Folder of checkpoints, of which the newest is read, or one step's folder.");
    options.add("ckpt-step", &step, "N", "The checkpoint of this iteration instead of the newest.", at_least(0));
    options.add("output", &output, "DIR",
                "Folder of the model. Files of the same export that exist and are intact are kept.");
    options.add_choice<std::string>("format", &format, {{"huggingface", "huggingface"}},
                                    "Format: that of Hugging Face's transformers.");
    options.add_choice(
        "dtype", &dtype, types_without_fp64,
        "Type of the weights, rounded from the master weights; default the training type, or fp32 for fp64.");
    options.add("max-shard-size", &max_shard_gb, "GB",
                "Divide the weights into files of at most this many gigabytes (1e9 bytes), with an index.",
                between(1e-9, 1e6));
    options.add_flag("lora-adapter", &adapter,
                     "Write the adapters of --lora-rank alone, in the format of PEFT: adapter_config.json and "
                     "adapter_model.safetensors. Without this option they are merged into the weights.");
    options.require({"load", "output"});
  }
};

/// The model in the form of its class, without adapters: a BERT that was imported with a smaller vocabulary regains its
/// size.
struct ExportedModel {
  io::HuggingFaceModel description;
  exchange::TensorMap map;
  exchange::PeftAdapters peft;  ///< description, if adapters alone are exported
};

/// Sets the special ids that are in the model's vocabulary. Without known ones, the token that ends documents begins
/// texts, too, as GPT-2's.
void put_special_ids(const data::Tokenizer& tokenizer, io::HuggingFaceModel& model) {
  const data::SpecialTokens& special = tokenizer.special();
  const auto id_of = [&](std::optional<std::int32_t> id) {
    const bool is_token = id && *id >= 0 && *id < model.config.vocabulary;
    return is_token ? std::optional<std::int64_t>(*id) : std::nullopt;
  };
  model.bos = id_of(special == data::SpecialTokens{} ? tokenizer.end_of_document() : special.beginning());
  model.pad = id_of(special.pad);
  for (const std::int32_t end : tokenizer.stops()) {
    if (const auto id = id_of(end)) model.ends.push_back(*id);
  }
}

ExportedModel exported_model(const Attributes& attributes, const data::Tokenizer& tokenizer,
                             const ExportOptions& options) {
  ExportedModel result;
  io::HuggingFaceModel& model = result.description;
  model.config = model::config_from(attributes);
  const model::LowRankAdapters adapters = std::exchange(model.config.adapters, {});
  TRIREME_CHECK(adapters.any() || !options.adapter, ConfigError,
                "--lora-adapter: the checkpoint in {} has no adapters: leave it out", options.load);
  // Several classes may fit: an imported model keeps its own.
  const bool is_imported =
      attributes.contains("import.class") && attributes.get<std::string>("import.format") == "huggingface";
  model.model_class = &exchange::model_class_of(
      model.config, is_imported ? attributes.get<std::string>("import.class") : std::string());
  exchange::MapOptions map{.writes_copies = true};
  if (model.config.is_bert() && attributes.contains("import.vocabulary")) {
    map.vocabulary_rows = std::min(attributes.get("import.vocabulary", std::int64_t{1}), model.config.vocabulary);
  }
  result.map = exchange::tensor_map(*model.model_class, model.config, map);
  if (options.adapter) {
    result.map = exchange::peft_map(result.map, adapters, result.peft);
    if (!result.peft.beside_experts.empty()) {
      log::warn(
          "--lora-adapter: peft 0.21 on transformers 5 takes the names of layers beside experts, such as {}, for those "
          "of the experts, and leaves out their adapters: without --lora-adapter all are merged",
          result.peft.beside_experts);
    }
  } else {
    exchange::merge_adapters(result.map, adapters);
  }
  if (map.vocabulary_rows.all > 0) model.config.vocabulary = map.vocabulary_rows.all;
  put_special_ids(tokenizer, model);
  model.labels = class_names_of(attributes);
  return result;
}

/// Returns the README.md of an exported model: its shape, training, data, checkpoint and the program's commit.
std::string model_card(const OpenCheckpoint& checkpoint, const exchange::ModelClass& model_class, DType dtype) {
  const Attributes& attributes = checkpoint.description.attributes;
  const checkpoint::Manifest& manifest = checkpoint.reader->manifest();
  model::ModelConfig config = model::config_from(attributes);
  config.adapters = {};  // merged
  std::string text =
      fmt::format("---\nlibrary_name: transformers\n{}---\n\n# {}\n\nExported by Trireme {}.\n\n| | |\n| --- | --- |\n",
                  config.is_bert() ? "" : "pipeline_tag: text-generation\n", model_class.name, version());
  const auto row = [&](std::string_view name, const auto& value) { text += fmt::format("| {} | {} |\n", name, value); };
  row("parameters", model::parameter_count(config));
  row("layers, hidden size, heads", fmt::format("{}, {}, {}", config.layers, config.hidden, config.heads));
  row("type of the weights", fmt::format("{}, from {} master weights", name_of(dtype),
                                         manifest.pieces.empty() ? "no" : name_of(manifest.pieces.front().dtype)));
  row("checkpoint", fmt::format("step {}, digest {}", manifest.step, manifest.digest));
  row("files saved by the ranks of its grid", manifest.files.size());
  if (attributes.contains_prefix("state.")) {
    const train::Progress progress = train::progress_from(attributes);
    row("iterations, samples", fmt::format("{}, {}", progress.iteration, progress.consumed_samples));
  }
  // All records of the run on its data and training.
  for (const auto& [name, value] : attributes.texts()) {
    const bool is_listed = name.starts_with("data.") || name.starts_with("training.") || name.starts_with("import.") ||
                           name == "dtype" || name == "tokenizer" || name == "optimizer";
    if (!is_listed || value.find_first_of("|\n`") != value.npos) continue;
    row("`" + name + "`", value);
  }
  return text;
}

struct ExportedStep {
  std::string description;  ///< step, class and type
  exchange::ExportResult files;
};

/// Removes those files of an earlier export to this folder that are not among `files`, which replace the others:
/// transformers would read them. Removes config.json before, which says that all others are there.
void remove_other_files(const std::string& folder, const std::map<std::string, std::string>& files) {
  std::error_code error;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "chat_template.jinja",
                           "chat_template.json", "additional_chat_templates", "generation_config.json"}) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (files.contains(name) || !io::is_there(path)) continue;
    std::filesystem::remove(folder + "/config.json", error);
    if (!error) std::filesystem::remove_all(path, error);
    TRIREME_CHECK(!error, IoError, "cannot delete {}: {}", path, error.message());
    log::info("removed {}, of an earlier export", path);
  }
}

ExportedStep export_step(Communicator& world, const ExportOptions& o, const OpenCheckpoint& source) {
  const Attributes& attributes = source.description.attributes;
  const DType trained = trained_dtype(attributes);
  const DType dtype = o.dtype.value_or(trained == DType::fp64 ? DType::fp32 : trained);
  ExportedModel model;
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::map<std::string, std::string> files;  // text by name, of all but config.json and the weights
  std::optional<io::FolderLock> lock;
  std::optional<io::SafetensorsOutput> weights;
  bool replaces = false;  // an earlier export
  collectively(world, [&] {
    tokenizer = tokenizer_of(source.description);
    model = exported_model(attributes, *tokenizer, o);
    const model::ModelConfig& config = model.description.config;
    files = io::tokenizer_files(*tokenizer, config.vocabulary, config.max_positions);
    const std::int64_t most =
        o.adapter ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(o.max_shard_gb * 1e9);
    weights.emplace(o.output, exchange::tensors_of(model.map, dtype), most,
                    fmt::format("checkpoint {} in {}", source.reader->manifest().digest, name_of(dtype)),
                    o.adapter ? io::adapter_names : io::ExportNames());
    if (world.rank() != 0) return;
    TRIREME_CHECK(!io::is_there(fmt::format("{}/{}", o.output, io::manifest_name)), ConfigError,
                  "--output {} is a checkpoint of this program: name another folder", o.output);
    io::make_folders(o.output);
    lock.emplace(o.output + "/.lock", o.output);
    // An export that was killed has deleted the description of an earlier one, but not all of its weights.
    replaces = io::is_there(o.output + "/config.json") || io::is_there(o.output + "/" + weights->file_name(0));
    weights->prepare_folder();
    const std::int64_t free = io::free_bytes(o.output);
    TRIREME_CHECK(free >= weights->total_bytes() || io::is_there(o.output + "/" + weights->file_name(0)), IoError,
                  "the weights need {} bytes in {}, where {} are free", weights->total_bytes(), o.output, free);
  });
  if (tokenizer->name() == "null" && world.rank() == 0) {
    log::warn("the checkpoint has ids of an unknown tokenizer: no tokenizer is exported");
  }
  ExportedStep result;
  result.description = fmt::format("{} as {}{} in {}", source.reader->description(), o.adapter ? "adapters of " : "",
                                   model.description.model_class->name, name_of(dtype));
  result.files = exchange::export_weights(*source.reader, model.map, dtype, *weights, world);
  collectively(world, [&] {
    if (world.rank() != 0) return;
    weights->finish();
    const auto write = [&](const std::string& name, const std::string& text) {
      if (const std::size_t end = name.find('/'); end != name.npos) {
        std::filesystem::create_directories(o.output + "/" + name.substr(0, end));
      }
      io::write_durably(o.output + "/" + name, text);
    };
    if (o.adapter) {
      return write(io::adapter_names.description, io::adapter_json(model.peft, !model.description.config.is_bert()));
    }
    if (!model.description.config.is_bert() && !files.contains("generation_config.json")) {
      files["generation_config.json"] = io::generation_config_json(model.description);
    }
    files["README.md"] = model_card(source, *model.description.model_class, dtype);
    if (replaces) remove_other_files(o.output, files);
    for (const auto& [name, text] : files) write(name, text);
    // Written last: without this file there is no model.
    write("config.json", io::config_json(model.description, dtype));
  });
  return result;
}

}  // namespace

int checkpoint_export_command(const CommandLine& line) {
  ExportOptions o;
  Options options(line.command(),
                  "Writes a checkpoint's model for Hugging Face's transformers: config.json, generation_config.json, "
                  "safetensors, the tokenizer's files and a model card. Under mpirun the ranks share the work; each "
                  "holds part of a tensor at a time.");
  o.declare(options);
  if (!line.read(options)) return 0;

  const auto world = line.environment().make_world();
  check_same_options(*world, options);
  const Timer timer;
  const auto open = [&](checkpoint::Verification verification) {
    return open_checkpoint(*world, o.load, {.step = o.step, .verification = verification});
  };
  OpenCheckpoint source = open(checkpoint::Verification::while_reading);
  ExportedStep step;
  try {
    step = export_step(*world, o, source);
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::data) throw;
    // Reports all damage, or opens an earlier step if none was named.
    source = open(checkpoint::Verification::at_opening);
    step = export_step(*world, o, source);
  }
  const double gigabytes = static_cast<double>(step.files.written_bytes) / 1e9;
  log::info("{}: {}, {} of weights written, {} kept, {:.2f} GB in {:.1f} s, {:.2f} GB/s", o.output, step.description,
            counted(step.files.written_files, "file"), step.files.kept_files, gigabytes, timer.elapsed_s(),
            gigabytes / timer.elapsed_s());
  return 0;
}

}  // namespace trireme::app
