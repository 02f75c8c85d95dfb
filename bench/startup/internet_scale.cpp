// Prints tables of jobs with 1,024 to 16,384 ranks, computed in one process without their machines:
//
//   internet_scale start   descriptions of tensors that ranks send, and a checkpoint's manifest, with processor time
//   internet_scale steps   predicted steps on DGX H100, with the global batch constant or growing with the ranks
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "io/checkpoint/manifest_json.hpp"
#include "src/base/error.hpp"
#include "src/checkpoint/manifest.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/model/presets.hpp"
#include "src/model/stage/model_parameters.hpp"
#include "src/plan/search/search.hpp"
#include "src/train/state_tensors.hpp"

namespace trireme {
namespace {

constexpr int world_sizes[] = {1024, 4096, 16384};

/// A model with its training layout.
struct Case {
  const char* name;
  model::ModelConfig model;
  std::int64_t sequence_length;
  int tensor;
  int pipeline;
  int chunks;
  std::int64_t micro_batch;  ///< at most
  std::int64_t global_batch;
};

/// The 8.3B model of Shoeybi et al. 2019, and the 175B and 1T models of Narayanan et al. 2021 with their layouts.
std::vector<Case> cases() {
  const auto gpt = [](int layers, std::int64_t hidden, std::int64_t heads) {
    model::ModelConfig config = model::preset("gpt2-8.3b");
    config.layers = layers;
    config.hidden = hidden;
    config.heads = heads;
    config.ffn_hidden = 4 * hidden;
    config.max_positions = 2048;
    return config;
  };
  return {{"8.3B", model::preset("gpt2-8.3b"), 1024, 4, 1, 1, 4, 2048},
          {"175B", gpt(96, 12288, 96), 2048, 8, 12, 4, 1, 1536},
          {"1T", gpt(128, 25600, 160), 2048, 8, 64, 2, 1, 3072}};
}

train::ExecutionConfig execution_of(const Case& job, parallel::DataSharding sharding) {
  train::ExecutionConfig execution;
  execution.dtype = DType::bf16;
  execution.sequence_length = job.sequence_length;
  execution.parallel.sequence_parallel = true;
  if (job.chunks > 1) execution.parallel.pipeline.chunks = job.chunks;
  execution.parallel.overlap_p2p = job.chunks > 1;
  execution.parallel.data_parallel.sharding = sharding;
  return execution;
}

double processor_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Processor time of `function`.
double seconds(const std::function<void()>& function) {
  const double begin = processor_s();
  function();
  return processor_s() - begin;
}

/// A piece as described in a save: with its tensor's full shape.
checkpoint::Piece piece_of(const checkpoint::StateTensor& tensor, const std::string& kind) {
  checkpoint::Piece piece;
  piece.tensor = kind + "/" + tensor.name;
  piece.shape = tensor.shape;
  piece.slice = {tensor.box, tensor.flat_begin, tensor.data.numel()};
  return piece;
}

/// A checkpoint's manifest as built by all ranks together.
checkpoint::Manifest manifest_of(const Case& job, const train::ExecutionConfig& execution,
                                 const parallel::ProcessGrid& grid) {
  const std::string digest(32, '0');
  checkpoint::Manifest manifest;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    std::int64_t offset = 0;
    const std::size_t first = manifest.pieces.size();
    for (const checkpoint::StateTensor& tensor : train::state_pieces(job.model, execution, grid, rank)) {
      if (!tensor.written_here || tensor.data.numel() == 0) continue;
      for (const char* kind : {"model", "adamw_m", "adamw_v"}) {
        checkpoint::Piece& piece = manifest.pieces.emplace_back(piece_of(tensor, kind));
        piece.file = manifest.files.size();
        piece.dataset = "tensor/" + piece.tensor + "/0";
        piece.offset_bytes = offset;
        piece.digest = digest;
        offset += piece.size_bytes();
      }
    }
    if (manifest.pieces.size() > first) manifest.files.push_back({checkpoint::shard_name(rank), offset, digest});
  }
  return manifest;
}

void print_start(const Case& job, int ranks, parallel::DataSharding sharding) {
  const parallel::ProcessGrid grid(ranks, job.tensor, job.pipeline);
  const train::ExecutionConfig execution = execution_of(job, sharding);
  double descriptions = 0, names = 0;  // bytes of one rank of each stage
  for (int stage = 0; stage < job.pipeline; ++stage) {
    std::vector<checkpoint::Piece> held;
    for (const checkpoint::StateTensor& tensor :
         train::state_pieces(job.model, execution, grid, grid.rank({.pipeline = stage}))) {
      for (const char* kind : {"model", "adamw_m", "adamw_v"}) {
        held.push_back(piece_of(tensor, kind));
        held.back().slice = {Box::whole(tensor.shape), 0, 0};
        names += static_cast<double>(held.back().tensor.size() + 1);
      }
    }
    descriptions += static_cast<double>(checkpoint::to_text(held).size());
  }
  const double ranks_a_stage = static_cast<double>(ranks) / job.pipeline;
  checkpoint::Manifest manifest, copy;
  const double plan_s = seconds([&] { manifest = manifest_of(job, execution, grid); });
  std::string text;
  const double write_s = seconds([&] { text = io::manifest_to_json(manifest); });
  const double written_mb = static_cast<double>(checkpoint::to_text(manifest.pieces).size()) / 1e6;
  const double read_s = seconds([&] { copy = io::manifest_from_json(text, "manifest"); });
  const double validate_s = seconds([&] { checkpoint::validate(copy); });
  const double groups_s = seconds([&] {
    for (const parallel::GroupKind kind : parallel::all_group_kinds) {
      if (grid.group(kind, ranks - 1).size() > static_cast<std::size_t>(ranks)) std::abort();
    }
  });
  fmt::print(
      "| {} | {} | {} | {:.1f} | {:.3f} | {:.1f} | {:.3f} | {} | {:.1f} | {:.1f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} "
      "|\n",
      job.name, ranks, sharding == parallel::DataSharding::none ? "no" : "yes", descriptions * ranks_a_stage / 1e6,
      descriptions / 1e6, names * ranks_a_stage / 1e6, names / 1e6, manifest.pieces.size(), written_mb,
      static_cast<double>(text.size()) / 1e6, write_s, read_s, validate_s, 1e3 * groups_s);
  std::fflush(stdout);
  if (plan_s > 60) fmt::print(stderr, "planning the files took {:.0f} s\n", plan_s);
}

void print_starts() {
  fmt::print(
      "| model | ranks | sharded | descriptions sent, each rank MB | each stage MB | names, each rank MB | each stage "
      "MB | "
      "pieces | of writers MB | manifest MB | write s | read s | validate s | groups ms |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Case& job : cases()) {
    for (const int ranks : world_sizes) {
      for (const auto sharding : {parallel::DataSharding::none, parallel::DataSharding::optimizer}) {
        // A grid consists of complete replicas: rounds the number of ranks down.
        const int replica = job.tensor * job.pipeline;
        print_start(job, ranks / replica * replica, sharding);
      }
    }
  }
}

/// Seconds to transfer `bytes` at `gigabytes` per second.
double transfer_s(double bytes, double gigabytes) { return bytes / (gigabytes * 1e9); }

void print_step(plan::ClusterCosts& costs, const Case& job, int ranks, std::int64_t global_batch) {
  const int replica = job.tensor * job.pipeline;
  const int used = ranks / replica * replica;
  const int data = used / replica;
  const std::int64_t micro_batch = std::clamp<std::int64_t>(global_batch / data, 1, job.micro_batch);
  const std::int64_t batch = global_batch / (data * micro_batch) * data * micro_batch;
  fmt::print("| {} | {} | {} | {} | ", job.name, used, data, batch);
  if (batch == 0) {
    fmt::print("no sample is left for each of the data ranks | | | | | | | |\n");
    return;
  }
  const parallel::ProcessGrid grid{used, job.tensor, job.pipeline};
  plan::Job one{job.model, execution_of(job, parallel::DataSharding::optimizer), {}, grid};
  one.options.global_batch_size = batch;
  one.execution.micro_batch_size = micro_batch;
  one.execution.parallel.data_parallel.overlap_reduce = one.execution.parallel.data_parallel.overlap_gather = true;
  try {
    double memory = static_cast<double>(costs.memory(one, 0).total());
    if (memory > costs.limit_bytes()) {
      one.execution.recomputation.granularity = model::RecomputeGranularity::full;
      memory = static_cast<double>(costs.memory(one, 0).total());
    }
    const plan::StepPrediction step = costs.predict(one);
    const auto share = [&](double ms) { return 100 * ms / step.step_ms; };
    const plan::WorkTime& work = step.work;
    const double tensor = work.of(plan::Traffic::tensor).exposed_ms;
    const double data_ms = work.of(plan::Traffic::gradients).exposed_ms + work.of(plan::Traffic::parameters).exposed_ms;
    constexpr double peak = 989.5e12;  // dense bf16 of an H100
    fmt::print("{:.0f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.0f}{} | {:.2f} |\n", step.step_ms,
               share(tensor), share(data_ms), share(work.exposed() - tensor - data_ms),
               share(std::max(0.0, step.bubble_ms)), 100 * step.model_flops / (step.step_ms / 1e3) / used / peak,
               memory / 1e9,
               one.execution.recomputation.granularity == model::RecomputeGranularity::full ? ", recomputed" : "",
               static_cast<double>(batch * job.sequence_length) / step.step_ms / 1e3);
  } catch (const Error& error) {
    fmt::print("{} | | | | | | | |\n", error.what());
  }
  std::fflush(stdout);
}

void print_steps() {
  plan::ClusterCosts costs(plan::cluster_preset("dgx-h100"));
  for (const bool grown : {false, true}) {
    fmt::print(
        "\nGlobal batch {}:\n\n| model | ranks | data ranks | batch | step ms | tensor % | data % | other % | bubble % "
        "| "
        "MFU % | first stage GB | Mtokens/s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- "
        "|\n",
        grown ? "grown with the ranks" : "held");
    for (const Case& job : cases()) {
      for (const int ranks : {1024, 2048, 4096, 8192, 16384}) {
        print_step(costs, job, ranks, grown ? job.global_batch * ranks / 1024 : job.global_batch);
      }
    }
  }
  fmt::print(
      "\n| model | checkpoint GB | s at 10 GB/s | s at 100 GB/s | s at 1 TB/s |\n| --- | --- | --- | --- | --- |\n");
  for (const Case& job : cases()) {
    const double bytes = 12.0 * static_cast<double>(model::parameter_count(job.model));  // weights and moments in fp32
    fmt::print("| {} | {:.0f} | {:.0f} | {:.1f} | {:.1f} |\n", job.name, bytes / 1e9, transfer_s(bytes, 10),
               transfer_s(bytes, 100), transfer_s(bytes, 1000));
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const std::string table = argc == 2 ? argv[1] : "";
  if (table != "start" && table != "steps") {
    fmt::print(stderr, "usage: internet_scale start|steps\n");
    return 2;
  }
  table == "start" ? trireme::print_starts() : trireme::print_steps();
}
