#include "cuda/cublaslt/algorithm_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "src/base/log.hpp"
#include "src/base/machine.hpp"

namespace trireme::cuda {
namespace {

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
  return fields;
}

std::string text_of(const Choice& choice) {
  std::string text = fmt::format("{}\t{}\t", choice.fused ? "fused" : "separate", choice.workspace_bytes);
  for (const std::uint64_t word : choice.algorithm) text += fmt::format("{:016x}", word);
  return text;
}

bool read_number(const std::string& text, int base, std::uint64_t& number) {
  if (text.empty() || text.find_first_not_of(base == 10 ? "0123456789" : "0123456789abcdef") != std::string::npos) {
    return false;
  }
  number = std::strtoull(text.c_str(), nullptr, base);
  return true;
}

/// Returns false if the fields after the third are not a choice.
bool read_choice(const std::vector<std::string>& fields, Choice& choice) {
  if (fields.size() != 6 || fields[5].size() != 16 * choice.algorithm.size()) return false;
  if (fields[3] != "fused" && fields[3] != "separate") return false;
  choice.fused = fields[3] == "fused";
  bool good = read_number(fields[4], 10, choice.workspace_bytes);
  for (std::size_t i = 0; i < choice.algorithm.size(); ++i) {
    good = good && read_number(fields[5].substr(16 * i, 16), 16, choice.algorithm[i]);
  }
  return good;
}

}  // namespace

AlgorithmCache::AlgorithmCache(std::string path, std::string device, std::uint64_t version)
    : path_(std::move(path)), device_(std::move(device)), version_(version) {
  if (path_.empty()) return;
  int bad_lines = 0;
  std::error_code failed;
  const bool is_ours = !std::filesystem::exists(path_, failed) || std::filesystem::is_regular_file(path_, failed);
  if (is_ours) choices_ = read(bad_lines);
  if (!is_ours || (choices_.empty() && bad_lines > 0)) {
    log::warn("{} is not a file of algorithms: it stays unchanged, and the choices of this run are not stored", path_);
    path_.clear();
  } else if (bad_lines > 0) {
    log::warn("{}: ignoring {} lines that are not a choice of an algorithm", path_, bad_lines);
  }
}

std::string AlgorithmCache::line_key(const std::string& product) const {
  return fmt::format("{}\t{}\t{}", device_, version_, product);
}

AlgorithmCache::Lines AlgorithmCache::read(int& bad_lines) const {
  Lines lines;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = fields_of(line);
    Choice choice;
    if (read_choice(fields, choice)) {
      lines[fields[0] + '\t' + fields[1] + '\t' + fields[2]] = choice;
    } else {
      ++bad_lines;
    }
  }
  return lines;
}

std::optional<Choice> AlgorithmCache::find(const std::string& product) const {
  const auto found = choices_.find(line_key(product));
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

void AlgorithmCache::keep(const std::string& product, const Choice& choice) {
  choices_[line_key(product)] = kept_[line_key(product)] = choice;
  is_changed_ = true;
}

AlgorithmCache::~AlgorithmCache() {
  try {
    write();
  } catch (const std::exception& error) {
    log::warn("the algorithms chosen for products are not stored in {}: {}", path_, error.what());
  }
}

void AlgorithmCache::write() {
  if (path_.empty() || kept_.empty()) return;
  int bad_lines = 0;
  Lines lines = read(bad_lines);
  // Several ranks may write concurrently: each writes a complete file, and the last one remains. It may lack another
  // rank's lines, which that rank adds at its next write.
  const auto is_there = [&](const auto& line) { return lines.contains(line.first); };
  if (!std::exchange(is_changed_, false) && std::ranges::all_of(kept_, is_there)) return;
  for (const auto& [key, choice] : kept_) lines[key] = choice;
  const std::string temporary = fmt::format("{}.{}.{}", path_, host_name(), getpid());
  std::error_code failed;
  if (const auto folder = std::filesystem::path(path_).parent_path(); !folder.empty()) {
    std::filesystem::create_directories(folder, failed);
  }
  std::ofstream file(temporary);
  for (const auto& [key, choice] : lines) file << key << '\t' << text_of(choice) << '\n';
  file.close();
  if (file.good()) std::filesystem::rename(temporary, path_, failed);
  if (file.good() && !failed) return;
  std::filesystem::remove(temporary, failed);
  log::warn("writing the algorithms chosen for products to {} failed: the next run chooses them again", path_);
  path_.clear();
}

}  // namespace trireme::cuda
