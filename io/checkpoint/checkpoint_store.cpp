#include "io/checkpoint/checkpoint_store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <tuple>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_shard.hpp"
#include "io/checkpoint/manifest_json.hpp"
#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "io/posix/system_call.hpp"
#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/checkpoint/load.hpp"

namespace trireme::io {
namespace {

using checkpoint::Manifest;
using checkpoint::ShardDataset;
using checkpoint::ShardFile;
using checkpoint::StepEntry;

constexpr const char* latest_name = "LATEST";
constexpr const char* lock_name = ".lock";
constexpr std::string_view staging_prefix = ".tmp-";
constexpr std::string_view origin_infix = "-from-";

std::string name_of_step(std::int64_t step) { return fmt::format("{}{:08}", step_prefix, step); }

/// Bytes allocated to the files of a folder, without holes.
std::int64_t used_bytes(const std::string& folder) {
  std::int64_t sum = 0;
  for (const std::string& name : names_in(folder)) {
    struct stat status {};
    if (lstat((folder + "/" + name).c_str(), &status) == 0) sum += std::int64_t{512} * status.st_blocks;
  }
  return sum;
}

}  // namespace

bool is_step_name(std::string_view name) {
  const std::int64_t number = number_in(name, step_prefix);
  return number >= 0 && name == name_of_step(number);
}

CheckpointStore::CheckpointStore(std::string root) : root_(std::move(root)) {
  while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
  std::signal(SIGXFSZ, SIG_IGN);
}

void CheckpointStore::take_folder() {
  if (lock_) return;
  const std::string name = root_.substr(root_.rfind('/') + 1);
  TRIREME_CHECK(!is_step_name(name) && !is_there(path(std::string(manifest_name))), ConfigError,
                "{} is one checkpoint, or has the name of one: name the folder that holds it, or another one", root_);
  make_folders(root_);
  lock_ = std::make_unique<FolderLock>(path(lock_name), root_);
}

void CheckpointStore::reserve() {
  if (is_there(root_)) take_folder();
}

void CheckpointStore::check_space(std::int64_t needed_bytes) const {
  const std::int64_t free = free_bytes(root_);
  TRIREME_CHECK(
      free >= needed_bytes, IoError,
      "a checkpoint needs {} bytes in {}, where {} are free: free some, save to another folder, or keep fewer "
      "steps",
      needed_bytes, root_, free);
}

std::string CheckpointStore::claim(std::int64_t needed_bytes) {
  take_folder();
  const std::string probe = path(std::string(staging_prefix) + "probe-" + unique_suffix());
  write_durably(probe, std::string(4096, 'x'));
  TRIREME_CHECK(unlink(probe.c_str()) == 0, IoError, "cannot delete {}: {}", probe, std::strerror(errno));
  check_space(needed_bytes);
  return lock_->content();
}

void CheckpointStore::confirm(const std::string& token) {
  // Network file systems may show another node's file with a delay.
  for (int attempt = 0; attempt < 30; ++attempt) {
    if (access(path(lock_name).c_str(), R_OK) == 0 && read_whole_file(path(lock_name), 4096) == token) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw EnvironmentError("{} does not hold what rank 0 wrote there: checkpoints need a folder that all nodes share",
                         root_);
}

std::string CheckpointStore::begin(std::int64_t step, std::int64_t needed_bytes, const std::string& origin) {
  take_folder();
  const std::string staging = origin.empty() ? fmt::format("{}{:08}-{}", staging_prefix, step, unique_suffix())
                                             : fmt::format("{}{:08}{}{}", staging_prefix, step, origin_infix, origin);
  clean(staging);
  const bool goes_on = !origin.empty() && is_folder(path(staging));
  check_space(goes_on ? needed_bytes - used_bytes(path(staging)) : needed_bytes);
  TRIREME_CHECK(goes_on || mkdir(path(staging).c_str(), 0777) == 0, IoError, "cannot create the folder {}: {}",
                path(staging), std::strerror(errno));
  return staging;
}

ShardFile CheckpointStore::write_shard(const std::string& staging, const std::string& file_name,
                                       std::span<const ShardDataset> datasets) {
  try {
    const bool has_origin = staging.find(origin_infix) != staging.npos;
    if (has_origin) {
      if (std::optional<ShardFile> kept = recorded_shard(path(staging), file_name, datasets)) {
        log::info("{} already exists and is intact: kept", file_name);
        return *kept;
      }
    }
    ShardFile file = write_shard_file(path(staging), file_name, datasets);
    if (has_origin) write_shard_record(path(staging), file, datasets);
    return file;
  } catch (const DataError&) {
    throw;  // the files that are imported are damaged, not these
  } catch (const Error& error) {
    std::int64_t needed_bytes = 0;
    for (const ShardDataset& dataset : datasets) needed_bytes += dataset.size_bytes();
    throw IoError("{}; this rank's tensors need {} bytes, {} are free", error.what(), needed_bytes, free_bytes(root_));
  }
}

std::unique_ptr<checkpoint::FileSink> CheckpointStore::add_file(const std::string& folder,
                                                                const checkpoint::FileEntry& file) {
  return copy_of_shard(path(folder), file);
}

void CheckpointStore::commit(const std::string& staging, const Manifest& manifest) {
  const std::string name = name_of_step(manifest.step);
  const std::string text = manifest_to_json(manifest);
  std::string trash;
  try {
    for (const std::string& hidden : names_in(path(staging))) {  // records of a save with an origin
      if (hidden.starts_with('.')) unlink((path(staging) + "/" + hidden).c_str());
    }
    write_durably(path(staging) + "/" + manifest_name, text);
    if (has_folder(name)) trash = move_to_trash(name);
    rename_durably(path(staging), path(name));
  } catch (const IoError& error) {
    if (!trash.empty() && !is_folder(path(name))) std::rename(path(trash).c_str(), path(name).c_str());
    throw IoError("step {} could not be saved: {}; {} bytes are free", manifest.step, error.what(), free_bytes(root_));
  }
  try {
    write_durably(path(latest_name), name + "\n");
  } catch (const IoError& error) {
    throw IoError("{} is saved, but {} still names the step before: {}; {} bytes are free", path(name), latest_name,
                  error.what(), free_bytes(root_));
  }
  if (!trash.empty()) discard(trash);
}

void CheckpointStore::abandon(const std::string& staging) noexcept {
  try {
    remove_folder(path(staging), manifest_name);
  } catch (const Error& error) {
    log::warn("the next save will remove {}: {}", path(staging), error.what());
  }
}

bool CheckpointStore::has_folder(const std::string& name) const { return is_folder(path(name) + "/."); }

std::vector<StepEntry> CheckpointStore::steps() {
  std::vector<StepEntry> entries;
  const std::vector<std::string> names = names_in(root_);
  for (const std::string& name : names) {
    if (!is_step_name(name) || !has_folder(name)) continue;
    entries.push_back({.name = name, .step = number_in(name, step_prefix)});
  }
  for (const std::string& name : names) {
    const std::int64_t number = number_in(name, trash_prefix);
    if (number < 0 || !is_folder(path(name)) || !may_be_complete(name)) continue;
    entries.push_back({.name = name, .step = number, .replaced = true});
  }
  std::ranges::stable_sort(entries, [](const StepEntry& a, const StepEntry& b) {
    return std::tuple(-a.step, a.replaced) < std::tuple(-b.step, b.replaced);
  });

  const std::string latest_step = latest();
  const auto pointed =
      std::ranges::find_if(entries, [&](const StepEntry& entry) { return step_name(entry.step) == latest_step; });
  if (pointed != entries.end()) {
    pointed->latest = true;
  } else if (!latest_step.empty()) {
    log::warn("{} names {}, which is not there", path(latest_name), latest_step);
  }
  return entries;
}

std::string CheckpointStore::manifest_text(const std::string& name) { return manifest_text_of(path(name)); }

std::unique_ptr<checkpoint::StepReader> CheckpointStore::open_with(const std::string& name,
                                                                   const std::string& manifest_text) {
  return std::make_unique<CheckpointReader>(path(name), manifest_text);
}

std::string CheckpointStore::step_name(std::int64_t step) const { return name_of_step(step); }

void CheckpointStore::remove(const std::string& name) {
  if (latest() == name) unlink(path(latest_name).c_str());
  discard(move_to_trash(name));
}

void CheckpointStore::discard(const std::string& name) {
  if (!is_folder(path(name))) {  // a link, whose folder is not of this run
    unlink(path(name).c_str());
    return;
  }
  try {
    remove_folder(path(name), manifest_name);
  } catch (const IoError& error) {
    if (undeletable_.insert(name).second) log::warn("{}: it stays, delete it by hand", error.what());
  }
}

/// Returns the step's name in LATEST; empty if it names no usable step.
std::string CheckpointStore::latest() const {
  try {
    if (!is_there(path(latest_name))) return {};
    std::string name = read_whole_file(path(latest_name), 255);
    while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' ')) name.pop_back();
    if (is_step_name(name)) return name;
    log::warn("{} does not hold the name of a step, like {}", path(latest_name), name_of_step(1234));
  } catch (const Error& error) {
    log::warn("{}", error.what());
  }
  return {};
}

std::string CheckpointStore::move_to_trash(const std::string& name) {
  const std::int64_t number = std::max<std::int64_t>(0, number_in(name, step_prefix));
  std::string trash = fmt::format("{}{:08}-{}", trash_prefix, number, unique_suffix());
  rename_durably(path(name), path(trash));
  return trash;
}

/// Removes leftovers of killed saves, except `kept`. Requires the lock.
void CheckpointStore::clean(const std::string& kept) {
  for (const std::string& name : names_in(root_)) {
    if (name == kept) continue;
    if (name.starts_with(trash_prefix)) {
      restore_or_delete(name);
    } else if (name.starts_with(staging_prefix) || name.starts_with(std::string(lock_name) + "-")) {
      if (!undeletable_.contains(name)) log::info("removing {}, left by a save that was cut short", path(name));
      if (is_folder(path(name))) {
        discard(name);
      } else {
        unlink(path(name).c_str());
      }
    }
  }
}

/// Returns false only if the step is certainly incomplete: an unreadable one may be complete.
bool CheckpointStore::may_be_complete(const std::string& name) {
  try {
    return checkpoint::looks_complete(*this, name);
  } catch (const IoError&) {
    return true;
  }
}

void CheckpointStore::restore_or_delete(const std::string& trash_name) {
  const std::string name = name_of_step(std::max<std::int64_t>(0, number_in(trash_name, trash_prefix)));
  if (has_folder(name)) {
    // Kept while it may be more complete than the step of that name.
    if (checkpoint::looks_complete(*this, name) || !checkpoint::looks_complete(*this, trash_name)) discard(trash_name);
  } else if (checkpoint::looks_complete(*this, trash_name)) {
    log::warn("{} was being replaced or deleted when a job was killed: its name is restored", path(name));
    rename_durably(path(trash_name), path(name));
  } else {
    discard(trash_name);
  }
}

CheckpointLocation find_checkpoint(const std::string& path) {
  char* const found = retried([&] { return realpath(path.c_str(), nullptr); });
  const int error = errno;
  const std::string folder = found == nullptr ? "" : found;
  std::free(found);
  TRIREME_CHECK(!folder.empty() || is_absent(error), IoError, "cannot look for {}: {}", path, std::strerror(error));
  TRIREME_CHECK(!folder.empty() && is_folder(folder), CheckpointError, "there is no checkpoint folder {}: {}", path,
                folder.empty() ? std::strerror(error) : "it is not a folder");
  const std::size_t slash = folder.rfind('/');
  const std::string name = folder.substr(slash + 1);
  if (!is_step_name(name) && !is_there(folder + "/" + manifest_name)) return {folder, {}};
  return {folder.substr(0, std::max<std::size_t>(slash, 1)), name};
}

}  // namespace trireme::io
