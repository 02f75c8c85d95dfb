#include "src/checkpoint/load.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/checkpoint/kept_files.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme::checkpoint {
namespace {

/// Returns the distinct lines of all ranks, sorted, on rank 0; empty on the others.
std::set<std::string> lines_of_all_ranks(Communicator& world, const std::set<std::string>& lines) {
  std::set<std::string> all;
  for (const std::string& text : gather_distinct_text(world, fmt::format("{}", fmt::join(lines, "\n")), 0)) {
    for (const std::string_view line : split(text, '\n')) all.emplace(line);
  }
  return all;
}

/// Returns whether a tensor stored in `from` may be loaded in `to`: floating-point types convert to each other.
bool converts(DType from, DType to) { return from == to || std::max(from, to) <= DType::fp16; }

using PiecesByTensor = std::map<std::string_view, std::vector<const Piece*>>;

PiecesByTensor pieces_by_tensor(const Manifest& manifest) {
  PiecesByTensor pieces;
  for (const Piece& piece : manifest.pieces) pieces[piece.tensor].push_back(&piece);
  return pieces;
}

/// Logs the types if this rank's tensors are stored in fp64 and loaded in a narrower type, or the reverse.
void log_conversion(const StepReader& step, const PiecesByTensor& stored, std::span<const StateTensor> tensors) {
  for (const StateTensor& tensor : tensors) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) continue;
    const DType from = found->second.front()->dtype, to = tensor.data.dtype();
    if (from == to || (from != DType::fp64 && to != DType::fp64)) continue;
    return log::info("{}: weights stored in {} are loaded in {}", step.description(), name_of(from), name_of(to));
  }
}

/// One line for each tensor that differs from the one in the checkpoint or is missing there, and for each extra one;
/// the same on all ranks.
std::set<std::string> differences(Communicator& world, const PiecesByTensor& stored,
                                  std::span<const StateTensor> tensors, ExtraTensors extra) {
  std::set<std::string> problems;
  std::set<std::string> names;
  for (const StateTensor& tensor : tensors) {
    if (tensor.shape.numel() == 0) continue;
    names.insert(tensor.name);
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) {
      problems.insert(tensor.name + ": not in the checkpoint");
      continue;
    }
    const Piece& piece = *found->second.front();
    if (!converts(piece.dtype, tensor.data.dtype()) || piece.shape != tensor.shape) {
      problems.insert(fmt::format("{}: {} {} in the checkpoint, {} {} in this run", tensor.name, name_of(piece.dtype),
                                  to_string(piece.shape), name_of(tensor.data.dtype()), to_string(tensor.shape)));
    }
  }
  problems = lines_of_all_ranks(world, problems);
  if (extra == ExtraTensors::refuse) {
    names = lines_of_all_ranks(world, names);
    for (const auto& [name, pieces] : stored) {
      if (!names.contains(std::string(name))) problems.insert(std::string(name) + ": in the checkpoint only");
    }
  }
  // Only rank 0 has the lines of all.
  const std::string text = broadcast_text(world, fmt::format("{}", fmt::join(problems, "\n")), 0);
  const std::vector<std::string_view> lines = split(text, '\n');
  return {lines.begin(), lines.end()};
}

void require_filled(const StepReader& step, const StateTensor& tensor, std::int64_t filled) {
  TRIREME_CHECK(filled == tensor.data.numel(), CheckpointError, "{}: {} of {} elements of the tensor {} are missing",
                step.description(), tensor.data.numel() - filled, tensor.data.numel(), tensor.name);
}

/// Ranks that hold the same pieces of the tensors of a family.
struct Replicas {
  std::unique_ptr<Communicator> ranks;
  std::vector<std::size_t> tensors;  // indices in the list of this rank
  std::vector<int> readers;          // by tensor: the rank that reads it, its writer if there is one
};

/// Text of the pieces, equal for equal ones.
std::string pieces_text(std::span<const StateTensor> tensors, const std::vector<std::size_t>& chosen) {
  std::string text;
  for (const std::size_t i : chosen) {
    const StateTensor& tensor = tensors[i];
    text +=
        fmt::format("{} {} {} {} {} {} {}\n", tensor.name, to_string(tensor.shape), to_string(tensor.box.offset),
                    to_string(tensor.box.extent), tensor.flat_begin, tensor.data.numel(), name_of(tensor.data.dtype()));
  }
  return text;
}

/// Finds the ranks with which this one shares pieces. Collective. Each rank receives 8 bytes of each other and family.
std::vector<Replicas> find_replicas(Communicator& world, std::span<const StateTensor> tensors) {
  std::vector<Replicas> all;
  int last_family = -1;
  for (const StateTensor& tensor : tensors) last_family = std::max(last_family, tensor.family);
  last_family = all_reduce_number(world, last_family, ReduceOp::max);
  for (int family = 0; family <= last_family; ++family) {
    Replicas replicas;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].family == family) replicas.tensors.push_back(i);
    }
    const std::string text = pieces_text(tensors, replicas.tensors);
    const auto own = static_cast<std::int64_t>(hash64(text.data(), text.size(), 0));
    std::vector<std::int64_t> hashes = all_gather_number(world, own);
    const auto first = static_cast<int>(std::ranges::find(hashes, own) - hashes.begin());
    std::ranges::sort(hashes);
    if (std::ranges::adjacent_find(hashes) == hashes.end()) continue;  // no rank shares a piece
    replicas.ranks = world.split(first, world.rank(), "replicas");
    if (replicas.ranks->size() == 1) continue;
    for (std::size_t i = 0; i < replicas.tensors.size(); ++i) {
      replicas.readers.push_back(tensors[replicas.tensors[i]].written_here ? replicas.ranks->rank() : -1);
    }
    all_reduce_numbers(*replicas.ranks, replicas.readers, ReduceOp::max);
    for (std::size_t i = 0; i < replicas.readers.size(); ++i) {
      if (replicas.readers[i] < 0) replicas.readers[i] = static_cast<int>(i) % replicas.ranks->size();
    }
    all.push_back(std::move(replicas));
  }
  return all;
}

/// The tensors that this rank reads, for itself and its replicas.
std::vector<StateTensor> tensors_read_here(std::span<const StateTensor> tensors, const std::vector<Replicas>& all) {
  std::vector<char> is_received(tensors.size());
  for (const Replicas& replicas : all) {
    for (std::size_t i = 0; i < replicas.tensors.size(); ++i) {
      is_received[replicas.tensors[i]] = replicas.readers[i] != replicas.ranks->rank();
    }
  }
  std::vector<StateTensor> here;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_received[i]) here.push_back(tensors[i]);
  }
  return here;
}

void read_tensors(StepReader& step, const PiecesByTensor& stored, std::span<const StateTensor> tensors) {
  struct Copy {
    const Piece* piece;
    std::size_t tensor;
  };
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].data.numel() == 0) continue;
    for (const Piece* piece : stored.at(tensors[i].name)) copies.push_back({piece, i});
  }
  // File by file, each sequentially.
  std::ranges::sort(copies, {}, [](const Copy& copy) { return std::pair(copy.piece->file, copy.piece->offset_bytes); });
  std::vector<std::int64_t> filled(tensors.size());
  for (const Copy& copy : copies) filled[copy.tensor] += read_piece(step, *copy.piece, tensors[copy.tensor]);
  for (std::size_t i = 0; i < tensors.size(); ++i) require_filled(step, tensors[i], filled[i]);
}

void check_size(StepReader& step, std::size_t file) {
  const FileEntry& entry = step.manifest().files[file];
  const std::int64_t size_bytes = step.file_size(file);
  TRIREME_CHECK(size_bytes == entry.size_bytes, CheckpointError, "{}: the file {} has {} bytes instead of {}",
                step.description(), entry.name, size_bytes, entry.size_bytes);
}

std::vector<StepEntry> admitted_steps(Store& store, const StepFilter& filter) {
  std::vector<StepEntry> steps = store.steps();
  std::erase_if(steps, [&](const StepEntry& entry) { return filter && !filter(entry); });
  return steps;
}

std::unique_ptr<StepReader> open_step(Store& store, Communicator& world, const std::string& name,
                                      Verification verification, std::int64_t kept_bytes) {
  std::string text;
  collectively(world, [&] {
    if (world.rank() == 0) text = store.manifest_text(name);
  });
  text = broadcast_text(world, text, 0);
  std::unique_ptr<KeptFiles> step;
  collectively(world, [&] { step = std::make_unique<KeptFiles>(store.open_with(name, text), kept_bytes); });
  const Manifest& manifest = step->manifest();
  check_format(*step);
  collectively(world, [&] {
    validate(manifest);
    if (world.rank() == 0) check_files(*step);
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      if (static_cast<int>(i % static_cast<std::size_t>(world.size())) != world.rank()) continue;
      if (verification == Verification::at_opening) {
        step->keep(i);
        verify_file(*step, i);
      } else {
        check_size(*step, i);
      }
    }
  });
  return step;
}

}  // namespace

bool has_checkpoint(Store& store, Communicator& world, const StepFilter& filter) {
  std::string found;
  collectively(world, [&] {
    if (world.rank() == 0 && !admitted_steps(store, filter).empty()) found = "yes";
  });
  return !broadcast_text(world, found, 0).empty();
}

std::unique_ptr<StepReader> open_checkpoint(Store& store, Communicator& world, const std::string& name,
                                            Verification verification, const StepFilter& filter,
                                            std::int64_t kept_bytes) {
  if (!name.empty()) return open_step(store, world, name, verification, kept_bytes);
  std::string names;
  std::string latest;
  collectively(world, [&] {
    if (world.rank() != 0) return;
    for (const StepEntry& entry : admitted_steps(store, filter)) {
      names += entry.name + "\n";
      if (entry.latest) latest = entry.name;
    }
  });
  const auto warn = [&](const std::string& text) {
    if (world.rank() == 0) log::warn("{}", text);
  };
  std::string problems;
  names = broadcast_text(world, names, 0);
  for (const std::string_view line : split(names, '\n')) {
    const std::string candidate(line);
    try {
      std::unique_ptr<StepReader> step = open_step(store, world, candidate, verification, kept_bytes);
      if (!problems.empty()) {
        warn(fmt::format("step {} is loaded instead, from {}", step->manifest().step, step->description()));
      } else if (!latest.empty() && candidate != latest) {
        warn(
            fmt::format("LATEST names {}, but {} is newer and complete: it is loaded; to load another, name its folder",
                        latest, step->description()));
      }
      return step;
    } catch (const NewerFormatError&) {
      throw;
    } catch (const Error& error) {
      if (error.exit_code() == ExitCode::io) {
        throw IoError(
            "the checkpoint {} may be intact, but cannot be read: {}; no older step is loaded instead: check its "
            "storage, or name the folder of another step",
            candidate, error.what());
      }
      if (error.exit_code() != ExitCode::data) throw;
      warn(fmt::format("the checkpoint {} cannot be used: {}", candidate, error.what()));
      problems += fmt::format("\n  {}: {}", candidate, error.what());
    }
  }
  TRIREME_CHECK(!problems.empty(), CheckpointError, "there is no checkpoint in {}", store.description());
  throw CheckpointError("no checkpoint in {} is intact:{}", store.description(), problems);
}

RunDescription read_description(StepReader& step) {
  const Manifest& manifest = step.manifest();
  RunDescription description{manifest.step, manifest.attributes, {}};
  for (const Piece& piece : manifest.blobs) {
    std::string& bytes = description.blobs[piece.tensor];
    bytes.resize(static_cast<std::size_t>(piece.size_bytes()));
    step.read(piece.file, piece.offset_bytes, std::as_writable_bytes(std::span(bytes)));
    TRIREME_CHECK(digest(bytes.data(), bytes.size()) == piece.digest, CheckpointError,
                  "{}: the blob {} does not have the bytes that were saved", step.description(), piece.tensor);
  }
  return description;
}

void load(StepReader& step, Communicator& world, std::span<const StateTensor> tensors, ExtraTensors extra) {
  const PiecesByTensor stored = pieces_by_tensor(step.manifest());
  collectively(world, [&] {
    for (const StateTensor& tensor : tensors) {
      const std::string problem = slice_problem(tensor.shape, slice_of(tensor));
      TRIREME_CHECK(problem.empty(), ShapeError, "the tensor {} cannot be loaded: {}", tensor.name, problem);
    }
  });
  const std::set<std::string> problems = differences(world, stored, tensors, extra);
  if (!problems.empty()) {
    constexpr int max_listed = 20;
    int listed = 0;
    std::string list;
    for (const std::string& problem : problems) {
      if (listed++ < max_listed) list += "\n  " + problem;
    }
    throw CheckpointError("{} does not fit this run; {} tensors differ{}:{}", step.description(), problems.size(),
                          listed > max_listed ? ", the first 20 of them" : "", list);
  }
  log_conversion(step, stored, tensors);
  const std::vector<Replicas> all = find_replicas(world, tensors);
  collectively(world, [&] { read_tensors(step, stored, tensors_read_here(tensors, all)); });
  ImmediateStream host;
  for (const Replicas& replicas : all) {
    for (std::size_t i = 0; i < replicas.tensors.size(); ++i) {
      replicas.ranks->broadcast(host, tensors[replicas.tensors[i]].data, replicas.readers[i]).wait(host);
    }
  }
}

TensorReader::TensorReader(StepReader& step, Verification verification) : step_(step), verification_(verification) {
  for (const Piece& piece : step.manifest().pieces) pieces_[piece.tensor].push_back(&piece);
  for (auto& [name, pieces] : pieces_) {
    std::ranges::sort(pieces, {}, [](const Piece* piece) { return std::pair(piece->file, piece->offset_bytes); });
  }
}

void TensorReader::read(const StateTensor& tensor) {
  std::int64_t filled = 0;
  for (const Piece* piece : pieces_[tensor.name]) {
    PieceCheck* check = nullptr;
    if (verification_ == Verification::while_reading) check = &checks_.try_emplace(piece, step_, *piece).first->second;
    filled += read_piece(step_, *piece, tensor, check);
  }
  require_filled(step_, tensor, filled);
}

void TensorReader::prefetch(const std::string& name, const TensorSlice& slice) {
  for (const Piece* piece : pieces_[name]) {
    std::optional<std::int64_t> first;
    std::int64_t end = 0;
    for_each_common_range(piece->slice, slice, [&](const ElementRange& range) {
      if (!first) first = range.from;
      end = range.from + range.count;
    });
    const auto element_bytes = static_cast<std::int64_t>(size_of(piece->dtype));
    if (first) {
      step_.prefetch(piece->file, piece->offset_bytes + *first * element_bytes, (end - *first) * element_bytes);
    }
  }
}

void TensorReader::finish() {
  for (auto& [piece, check] : checks_) check.finish();
}

void check_format(const StepReader& step) {
  const int version = step.manifest().format_version;
  TRIREME_CHECK(
      version <= Manifest::current_version, NewerFormatError,
      "{}: the checkpoint has format version {}, this program supports versions up to {}: use the program that "
      "wrote it, or a later one",
      step.description(), version, Manifest::current_version);
}

bool looks_complete(Store& store, const std::string& name) {
  try {
    const std::unique_ptr<StepReader> step = store.open(name);
    const Manifest& manifest = step->manifest();
    if (manifest.format_version > Manifest::current_version) return true;
    validate(manifest);
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      if (step->file_size(i) != manifest.files[i].size_bytes) return false;
    }
    return true;
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::data) throw;
    return false;
  }
}

void check_files(StepReader& step) {
  const std::vector<std::string> foreign = step.foreign_files();
  TRIREME_CHECK(
      foreign.empty(), CheckpointError,
      "{}: the manifest does not list the file {}: it belongs to another step, or was put there; move it away",
      step.description(), fmt::join(foreign, ", "));
}

void verify_file(StepReader& step, std::size_t file) {
  const Manifest& manifest = step.manifest();
  const FileEntry& entry = manifest.files[file];
  check_size(step, file);
  if (digest_of(step, file, 0, entry.size_bytes) == entry.digest) return;
  std::vector<std::string_view> damaged;
  for (const std::vector<Piece>* list : {&manifest.blobs, &manifest.pieces}) {
    for (const Piece& piece : *list) {
      if (piece.file != file || damaged.size() == 5) continue;
      if (digest_of(step, file, piece.offset_bytes, piece.size_bytes()) != piece.digest)
        damaged.push_back(piece.tensor);
    }
  }
  throw CheckpointError("{}: the file {} is damaged: {}", step.description(), entry.name,
                        damaged.empty() ? "not in a tensor, but in its metadata"
                                        : fmt::format("the tensors concerned are {}", fmt::join(damaged, ", ")));
}

}  // namespace trireme::checkpoint
