// Export and import on several ranks: the same bytes on any number of ranks; files are complete or absent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/safetensors/safetensors_output.hpp"
#include "src/base/hash.hpp"
#include "src/checkpoint/load.hpp"
#include "src/exchange/export.hpp"
#include "src/exchange/import.hpp"
#include "src/exchange/model_class.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::exchange {
namespace {

using test::message_of;
using test::world;
using testing::HasSubstr;

/// Folder created by rank 0 and shared with all ranks of the machine, removed at the end.
class SharedFolder {
 public:
  SharedFolder() {
    std::string path;
    if (world().rank() == 0) path = folder_.emplace().path();
    path_ = broadcast_text(world(), path, 0);
  }
  ~SharedFolder() { world().barrier(); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::optional<test::TemporaryDirectory> folder_;
  std::string path_;
};

model::ModelConfig config_of(std::string_view model_class) {
  model::ModelConfig config;
  config.layers = 2;
  config.hidden = 12;
  config.heads = 4;
  config.ffn_hidden = 20;
  config.vocabulary = 11;
  config.max_positions = 8;
  if (model_class == "GPT2LMHeadModel") return config;
  if (model_class == "BertForPreTraining") {
    config.family = model::ModelFamily::bert;
    config.norm_placement = model::NormPlacement::post;
    return config;
  }
  config.position_embedding = model::PositionEmbedding::rope;
  config.parallel_residual = model_class == "GPTNeoXForCausalLM" || model_class == "FalconForCausalLM";
  if (model_class == "GPTNeoXForCausalLM") return config;
  config.query_groups = 2;
  if (model_class == "Starcoder2ForCausalLM" || model_class == "FalconForCausalLM") return config;
  config.kv_channels = 6;
  config.normalization = model::Normalization::rms_norm;
  config.gated = true;
  config.linear_bias = false;
  config.tied_output = false;
  config.qk_norm_across_heads = model_class.starts_with("Olmo");
  config.qk_norm = config.qk_norm_across_heads || model_class.starts_with("Qwen3");
  config.post_branch_norm = model_class == "Olmo2ForCausalLM";
  if (model_class.starts_with("Gemma")) {
    model::set_fields(config, "geglu sandwich-norm scale-embeddings apply-layernorm-1p window-size 3");
    config.window = model::AttentionWindow::every(3, 2, config.layers);
    config.qk_norm = model_class.starts_with("Gemma3");
  }
  for (const char* with_experts : {"MixtralForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM"}) {
    if (model_class == with_experts) config.experts.count = 3;
  }
  if (model_class.starts_with("Deepseek")) {
    config.latent = {.used = true, .kv_rank = 5, .head_dim = 2, .rotary_dim = 4, .value_dim = 3};
    config.kv_channels = config.query_groups = 0;
    config.qk_norm = true;
    config.experts = {.count = 4, .ffn_hidden = 8, .shared_hidden = 16, .layers = "01"};
  }
  if (model_class == "DeepseekV3ForCausalLM") {
    config.latent.query_rank = 7;
    config.experts.score = RouterScore::sigmoid;
    config.experts.router_bias = true;
  }
  if (model_class == "Qwen3MoeForCausalLM") {
    config.experts.ffn_hidden = 8;
    config.experts.layers = "01";
  }
  return config;
}

/// Tensors whose elements are a formula of name and index.
class FormulaSource final : public TensorSource {
 public:
  FormulaSource(const TensorMap& map, DType dtype, double factor = 1)
      : tensors_(tensors_of(map, dtype)), factor_(factor) {}
  std::string description() const override { return "formula"; }
  const std::vector<ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override {
    dispatch_float(tensors_[tensor].dtype, [&]<class T>() {
      auto* elements = reinterpret_cast<T*>(out.data());
      for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) {
        const std::uint64_t index = static_cast<std::uint64_t>(first) + i;
        const auto value = static_cast<double>(splitmix64(fnv1a(tensors_[tensor].name), index) % 255) / 64 - 2;
        elements[i] = static_cast<T>(static_cast<float>(factor_ * value));
      }
    });
  }

 private:
  std::vector<ForeignTensor> tensors_;
  double factor_;
};

checkpoint::RunDescription description_of() { return {0, Attributes{{"model.kind", "x"}}, {{"tokenizer", "blob"}}}; }

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr std::int64_t small_slices = 200;
constexpr ExportSizes small{.slice_bytes = small_slices, .transposed_bytes = 500};

/// Model of a class, imported from a formula's weights as a step in a folder of this test.
struct ImportedStep {
  explicit ImportedStep(const char* model_class, const model::ModelConfig& config, DType dtype = DType::fp32,
                        double factor = 1)
      : map(tensor_map(model_class_from(model_class), config)), source(map, dtype, factor) {
    import_weights(source, map, match(map, source, {}), DType::fp32, store, world(), description_of(), "",
                   {.slice_bytes = small_slices, .file_bytes = 1000});
    step = checkpoint::open_checkpoint(store, world());
    if (world().rank() == 0) std::filesystem::create_directories(output);
    world().barrier();
  }
  explicit ImportedStep(const char* model_class) : ImportedStep(model_class, config_of(model_class)) {}

  SharedFolder folder;
  TensorMap map;
  FormulaSource source;
  io::CheckpointStore store{folder / "step"};
  std::unique_ptr<checkpoint::StepReader> step;
  const std::string output = folder / "out";  ///< folder for an export
};

TEST(Exchange, ExportOfImportHasTheSameBytesOfEveryClassAndType) {
  for (const auto& [model_class, dtype] : {std::pair{"GPT2LMHeadModel", DType::fp32},
                                           {"LlamaForCausalLM", DType::bf16},
                                           {"Qwen3ForCausalLM", DType::fp16},
                                           {"Qwen3MoeForCausalLM", DType::fp32},
                                           {"MixtralForCausalLM", DType::fp16},
                                           {"Starcoder2ForCausalLM", DType::bf16},
                                           {"GPTNeoXForCausalLM", DType::fp16},
                                           {"FalconForCausalLM", DType::bf16},
                                           {"Phi3ForCausalLM", DType::fp32},
                                           {"Gemma2ForCausalLM", DType::bf16},
                                           {"Gemma3ForCausalLM", DType::fp32},
                                           {"Olmo2ForCausalLM", DType::bf16},
                                           {"OlmoeForCausalLM", DType::fp16},
                                           {"DeepseekV2ForCausalLM", DType::fp32},
                                           {"DeepseekV3ForCausalLM", DType::bf16},
                                           {"BertForPreTraining", DType::fp32}}) {
    ImportedStep imported(model_class, config_of(model_class), dtype);
    auto& [folder, map, source, store, step, output] = imported;
    EXPECT_EQ(checkpoint::read_description(*step).blobs.at("tokenizer"), "blob");
    io::SafetensorsOutput destination(output, tensors_of(map, dtype), 3000, "test");
    const ExportResult result = export_weights(*step, map, dtype, destination, world(), small);
    EXPECT_GT(result.written_files, 1);
    collectively(world(), [&] {
      if (world().rank() == 0) destination.finish();
    });
    io::SafetensorsSource written(output);
    ASSERT_EQ(written.tensors().size(), source.tensors().size());
    for (std::size_t i = 0; i < written.tensors().size(); ++i) {
      const ForeignTensor& tensor = written.tensors()[i];
      const auto wanted = std::ranges::find(source.tensors(), tensor.name, &ForeignTensor::name);
      ASSERT_NE(wanted, source.tensors().end());
      EXPECT_EQ(tensor.dtype, dtype);
      std::vector<std::byte> actual(static_cast<std::size_t>(tensor.shape.numel()) * size_of(dtype));
      std::vector<std::byte> expected(actual.size());
      written.read(i, 0, actual);
      source.read(static_cast<std::size_t>(wanted - source.tensors().begin()), 0, expected);
      EXPECT_EQ(actual, expected) << tensor.name;
    }
  }
}

TEST(Exchange, AKilledImportResumesFromCompleteFiles) {
  /// Fails at the second file of a rank without cleaning up, like a kill.
  class Killed final : public io::CheckpointStore {
   public:
    using CheckpointStore::CheckpointStore;
    checkpoint::ShardFile write_shard(const std::string& staging, const std::string& file_name,
                                      std::span<const checkpoint::ShardDataset> datasets) override {
      if (++files_ == 2) throw IoError("killed");
      return CheckpointStore::write_shard(staging, file_name, datasets);
    }
    void abandon(const std::string&) noexcept override {}

   private:
    int files_ = 0;
  };
  /// Counts the bytes that are read.
  class Counting final : public TensorSource {
   public:
    explicit Counting(TensorSource& source) : source_(source) {}
    std::string description() const override { return source_.description(); }
    const std::vector<ForeignTensor>& tensors() const override { return source_.tensors(); }
    void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override {
      bytes += static_cast<std::int64_t>(out.size());
      source_.read(tensor, first, out);
    }
    std::int64_t bytes = 0;

   private:
    TensorSource& source_;
  };
  const SharedFolder folder;
  const TensorMap map = tensor_map(model_class_from("GPT2LMHeadModel"), config_of("GPT2LMHeadModel"));
  FormulaSource formula(map, DType::fp32);
  const std::string root = folder / "step";
  const auto import = [&](checkpoint::Store& store, const std::string& source_digest) {
    Counting source(formula);
    import_weights(source, map, match(map, source, {}), DType::fp32, store, world(), description_of(), source_digest,
                   {.slice_bytes = small_slices, .file_bytes = 1000});
    return source.bytes;
  };
  {
    Killed store(root);
    EXPECT_THAT(message_of([&] { import(store, "a"); }), HasSubstr("killed"));
  }
  world().barrier();
  std::int64_t again = 0, whole = 0;
  {
    io::CheckpointStore store(root);
    again = import(store, "a");
    EXPECT_NO_THROW(checkpoint::open_checkpoint(store, world()));
  }
  world().barrier();
  {
    io::CheckpointStore store(root);
    whole = import(store, "b");
    EXPECT_NO_THROW(checkpoint::open_checkpoint(store, world()));
  }
  EXPECT_LT(again, whole);
  EXPECT_GE(again, whole - 1000 - small_slices);
}

TEST(Exchange, ADamagedParameterLeavesNoFile) {
  ImportedStep imported("LlamaForCausalLM");
  auto& [folder, map, source, store, step, output] = imported;
  step = checkpoint::open_checkpoint(store, world(), "", checkpoint::Verification::while_reading);
  const auto piece =
      std::ranges::find(step->manifest().pieces, "model/h.1.mlp.proj.weight", &checkpoint::Piece::tensor);
  ASSERT_NE(piece, step->manifest().pieces.end());
  if (world().rank() == 0) {
    std::fstream file(step->description() + "/" + step->manifest().files[piece->file].name,
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(piece->offset_bytes + 3);
    file.put('x');
  }
  world().barrier();
  io::SafetensorsOutput destination(output, tensors_of(map, DType::fp32), 3000, "a");
  EXPECT_THAT(message_of([&] { export_weights(*step, map, DType::fp32, destination, world(), small); }),
              HasSubstr("model/h.1.mlp.proj.weight"));
  std::size_t damaged_file = 0;
  for (std::size_t file = 0; file < destination.files().size(); ++file) {
    for (const std::size_t tensor : destination.files()[file]) {
      if (map.tensors[tensor].name == "model.layers.1.mlp.down_proj.weight") damaged_file = file;
    }
  }
  for (std::size_t file = 0; file < destination.files().size(); ++file) {
    EXPECT_EQ(std::filesystem::exists(output + "/" + destination.file_name(file)), file < damaged_file);
  }
}

TEST(Exchange, AnExportRefusesElementsBeyondItsType) {
  for (const char* model_class : {"LlamaForCausalLM", "GPT2LMHeadModel"}) {  // the latter transposes
    ImportedStep imported(model_class, config_of(model_class), DType::fp32, 1e5);
    auto& [folder, map, source, store, step, output] = imported;
    io::SafetensorsOutput destination(output, tensors_of(map, DType::fp16), 1 << 20, "a");
    EXPECT_THAT(message_of([&] { export_weights(*step, map, DType::fp16, destination, world(), small); }),
                HasSubstr("that would be infinite in fp16"));
    world().barrier();
    EXPECT_TRUE(std::filesystem::is_empty(output));
  }
}

TEST(Exchange, AnInterruptedExportKeepsCompleteFilesAndRewritesDamagedOnes) {
  ImportedStep imported("LlamaForCausalLM");
  auto& [folder, map, source, store, step, output] = imported;
  const auto run = [&](const std::string& origin) {
    io::SafetensorsOutput destination(output, tensors_of(map, DType::fp32), 3000, origin);
    return export_weights(*step, map, DType::fp32, destination, world(), small);
  };
  const ExportResult first = run("a");
  EXPECT_EQ(first.kept_files, 0);
  const std::int64_t files = first.written_files;
  ASSERT_GE(files, 4);
  const std::string second_file = output + fmt::format("/model-00002-of-{:05}.safetensors", files);
  const std::string whole = bytes_of_file(second_file);
  world().barrier();
  if (world().rank() == 0) {
    std::filesystem::remove(output + fmt::format("/model-00001-of-{:05}.safetensors", files));
    std::fstream damaged(second_file, std::ios::binary | std::ios::in | std::ios::out);
    damaged.seekp(-3, std::ios::end);
    damaged.put('x');
    std::filesystem::resize_file(output + fmt::format("/model-00003-of-{:05}.safetensors", files), 100);
  }
  world().barrier();
  const ExportResult second = run("a");
  EXPECT_EQ(second.written_files, 3);
  EXPECT_EQ(second.kept_files, files - 3);
  EXPECT_EQ(bytes_of_file(second_file), whole);
  // Files of another checkpoint are not kept.
  EXPECT_EQ(run("b").kept_files, 0);
  world().barrier();
  if (world().rank() == 0) {
    for (const auto& entry : std::filesystem::directory_iterator(output)) {
      EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
    }
  }
}

TEST(Exchange, AFailureOnOneRankLeavesNoFile) {
  ImportedStep imported("GPT2LMHeadModel");
  auto& [folder, map, source, store, step, output] = imported;
  /// Fails on the last rank at its second write.
  class Failing final : public TensorDestination {
   public:
    explicit Failing(io::SafetensorsOutput& real) : real_(real) {}
    const std::vector<std::vector<std::size_t>>& files() const override { return real_.files(); }
    std::string file_name(std::size_t file) const override { return real_.file_name(file); }
    std::string open_existing(std::size_t file) override { return real_.open_existing(file); }
    std::string begin(std::size_t file) override { return real_.begin(file); }
    void open(std::size_t file, const std::string& begun) override { real_.open(file, begun); }
    void write(const Ranges& ranges, std::span<const std::byte> elements) override {
      if (world().rank() == world().size() - 1 && ++writes_ == 2) throw IoError("the disk is full");
      real_.write(ranges, elements);
    }
    void read(const Ranges& ranges, std::span<std::byte> out) override { real_.read(ranges, out); }
    void close() override { real_.close(); }
    void commit(const std::string& digest) override { real_.commit(digest); }
    void abandon() noexcept override { real_.abandon(); }

   private:
    io::SafetensorsOutput& real_;
    int writes_ = 0;
  };
  io::SafetensorsOutput real(output, tensors_of(map, DType::fp32), 1 << 20, "a");
  Failing failing(real);
  EXPECT_THAT(message_of([&] { export_weights(*step, map, DType::fp32, failing, world(), small); }),
              HasSubstr("the disk is full"));
  world().barrier();
  EXPECT_TRUE(std::filesystem::is_empty(output));
}

/// Imports a formula's weights to a model of `model_class` and exports them. Expects the weight of the last norm to
/// differ by `difference`.
void expect_norm_to_change_by(float difference, const char* model_class, bool norm_1p) {
  model::ModelConfig config = config_of(model_class);
  config.norm_1p = norm_1p;
  ImportedStep imported(model_class, config);
  auto& [folder, map, source, store, step, output] = imported;
  io::SafetensorsOutput destination(output, tensors_of(map, DType::fp32), 1 << 20, "a");
  export_weights(*step, map, DType::fp32, destination, world(), small);
  io::SafetensorsSource written(output);
  for (std::size_t i = 0; i < written.tensors().size(); ++i) {
    if (written.tensors()[i].name != "model.norm.weight") continue;
    float actual = 0, expected = 0;
    written.read(i, 0, std::as_writable_bytes(std::span(&actual, 1)));
    source.read(i, 0, std::as_writable_bytes(std::span(&expected, 1)));
    EXPECT_EQ(actual, expected + difference) << model_class;
    return;
  }
  FAIL() << "there is no model.norm.weight";
}

TEST(Exchange, NormsAreExportedAsTheClassStoresThem) {
  // The import keeps the formula's values, which the checkpoint then has as weights or as their differences from 1.
  expect_norm_to_change_by(1, "LlamaForCausalLM", true);
  expect_norm_to_change_by(-1, "Gemma2ForCausalLM", false);
  expect_norm_to_change_by(0, "Gemma2ForCausalLM", true);
}

}  // namespace
}  // namespace trireme::exchange
