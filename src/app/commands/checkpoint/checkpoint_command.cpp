#include "src/app/commands/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "io/checkpoint/checkpoint_shard.hpp"
#include "io/checkpoint/checkpoint_store.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/options/options.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/checkpoint/load.hpp"

namespace trireme::app {
namespace {

using checkpoint::FileEntry;
using checkpoint::Manifest;
using checkpoint::Piece;
using checkpoint::StepEntry;
using checkpoint::StepReader;

/// Returns the step of a step's folder, or all steps under their root, newest first.
std::vector<StepEntry> steps_at(const io::CheckpointLocation& location, io::CheckpointStore& store) {
  if (!location.step.empty()) return {{.name = location.step}};
  std::vector<StepEntry> entries = store.steps();
  TRIREME_CHECK(!entries.empty(), CheckpointError, "there is no checkpoint in {}", location.root);
  return entries;
}

/// Opens a step; throws CheckpointError if this program does not support its format.
std::unique_ptr<StepReader> open_step(io::CheckpointStore& store, const std::string& name) {
  std::unique_ptr<StepReader> step = store.open(name);
  checkpoint::check_format(*step);
  checkpoint::validate(step->manifest());
  return step;
}

std::int64_t total_bytes(const Manifest& manifest) {
  std::int64_t bytes = 0;
  for (const FileEntry& file : manifest.files) bytes += file.size_bytes;
  return bytes;
}

void print_step(const StepReader& step) {
  const Manifest& manifest = step.manifest();
  fmt::print("checkpoint  {}\nstep        {}\nformat      version {}\nsize        {} bytes in {}\n", step.description(),
             manifest.step, manifest.format_version, total_bytes(manifest),
             counted(std::ssize(manifest.files), "file"));
  fmt::print("\nattributes\n");
  for (const auto& [name, value] : manifest.attributes.texts()) {
    constexpr std::size_t max_bytes = 200;
    if (name == "options") continue;
    fmt::print("  {:32} {}{}\n", printable(name), printable(value.substr(0, max_bytes)),
               value.size() > max_bytes ? " ..." : "");
  }
  if (manifest.attributes.contains("options")) {
    fmt::print("\noptions (# not given)\n");
    const auto options = manifest.attributes.get<std::string>("options");
    for (const std::string_view line : split(options, '\n')) fmt::print("  {}\n", printable(line));
  }
  fmt::print("\nblobs\n");
  for (const Piece& blob : manifest.blobs) fmt::print("  {:32} {} bytes\n", printable(blob.tensor), blob.size_bytes());
  fmt::print("\nfiles\n");
  for (const FileEntry& file : manifest.files) {
    fmt::print("  {:32} {} bytes, digest {}\n", printable(file.name), file.size_bytes, printable(file.digest));
  }
  fmt::print("\ntensors\n");
  std::map<std::string, std::vector<const Piece*>> tensors;
  for (const Piece& piece : manifest.pieces) tensors[piece.tensor].push_back(&piece);
  std::int64_t elements = 0;
  for (const auto& [name, pieces] : tensors) {
    const Piece& first = *pieces.front();
    elements += first.shape.numel();
    fmt::print("  {:48} {} {:20} {}\n", printable(name), name_of(first.dtype), to_string(first.shape),
               counted(std::ssize(pieces), "piece"));
  }
  fmt::print("  {} tensors, {} elements\n", tensors.size(), elements);
}

/// Faults of steps, one entry per file.
struct Faults {
  std::string damaged;
  std::string unreadable;  ///< cannot be read now; may be undamaged

  template <class Check>
  void attempt(const Check& check) {
    try {
      check();
    } catch (const Error& error) {
      (error.exit_code() == ExitCode::io ? unreadable : damaged) += fmt::format("\n  {}", error.what());
    }
  }
  std::size_t size() const { return damaged.size() + unreadable.size(); }
};

void verify_step(io::CheckpointStore& store, const std::string& name, Faults& faults) {
  const std::size_t before = faults.size();
  std::unique_ptr<StepReader> step;
  faults.attempt([&] { step = open_step(store, name); });
  if (!step) return;
  const Manifest& manifest = step->manifest();
  faults.attempt([&] { check_attributes(manifest.attributes, manifest.step); });
  faults.attempt([&] { checkpoint::check_files(*step); });
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    faults.attempt([&] {
      checkpoint::verify_file(*step, file);
      io::check_shard_file(step->description(), manifest, file);
    });
  }
  if (faults.size() > before) return;
  fmt::print("{} is complete: step {}, {}, {} bytes\n", step->description(), manifest.step,
             counted(std::ssize(manifest.files), "file"), total_bytes(manifest));
}

}  // namespace

int checkpoint_inspect_command(const CommandLine& line) {
  std::string path;
  Options options(line.command(),
                  "Prints the steps of a folder, and the contents of the newest or the given one. Tensors are not "
                  "read: verify does that.");
  options.add_argument("DIR", &path, "The folder given to --save, or the folder of one step in it.");
  if (!line.read(options)) return 0;
  const io::CheckpointLocation location = io::find_checkpoint(path);
  io::CheckpointStore store(location.root);
  const std::vector<StepEntry> entries = steps_at(location, store);
  std::string printed;  // the newest step that can be used
  for (const StepEntry& entry : entries) {
    if (!location.step.empty()) break;
    std::string problem;
    try {
      checkpoint::check_format(*store.open(entry.name));
      if (printed.empty()) printed = entry.name;
    } catch (const Error& error) {
      problem = "  cannot be used: " + printable(error.what());
    }
    fmt::print("{}{}{}\n", entry.name, entry.latest ? "  latest" : "", problem);
  }
  if (location.step.empty()) fmt::print("\n");
  print_step(*open_step(store, printed.empty() ? entries.front().name : printed));
  return 0;
}

int checkpoint_verify_command(const CommandLine& line) {
  std::string path;
  Options options(line.command(),
                  "Reads all steps of a folder, or the given one. Checks every file against its digest, that each "
                  "element of each tensor is stored once, and that the HDF5 library finds the tensors in place.");
  options.add_argument("DIR", &path, "The folder given to --save, or the folder of one step in it.");
  if (!line.read(options)) return 0;
  const io::CheckpointLocation location = io::find_checkpoint(path);
  io::CheckpointStore store(location.root);
  Faults faults;
  for (const StepEntry& entry : steps_at(location, store)) verify_step(store, entry.name, faults);
  if (!faults.unreadable.empty()) faults.unreadable.insert(0, "cannot be read:");
  TRIREME_CHECK(faults.damaged.empty(), CheckpointError,
                "damaged:{}\n{}{}Steps printed as complete can be loaded instead.", faults.damaged, faults.unreadable,
                faults.unreadable.empty() ? "" : "\n");
  TRIREME_CHECK(faults.unreadable.empty(), IoError, "{}", faults.unreadable);
  return 0;
}

}  // namespace trireme::app
