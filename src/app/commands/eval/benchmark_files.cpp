#include "src/app/commands/eval/benchmark_files.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <ranges>
#include <set>

#include "io/json/task_json.hpp"
#include "io/posix/folder.hpp"
#include "src/app/commands/eval/task_file.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/data/text/unicode.hpp"
#include "src/data/text/words.hpp"

namespace trireme::app {
namespace {

using data::Benchmark;
using data::TaskDocument;

/// Returns the extension of a file's name in lower case, without that of a compression.
std::string extension_of(std::string_view name) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (name.ends_with(packed)) name.remove_suffix(packed.size());
  }
  return data::lower_case(name.substr(std::min(name.rfind('.'), name.size())));
}

/// Returns the name of a file without its folder.
std::string_view name_of_file(std::string_view path) { return path.substr(path.rfind('/') + 1); }

constexpr std::string_view data_extensions[] = {".jsonl", ".json", ".ndjson", ".csv", ".txt", ".raw", ".tokens"};

bool is_data_file(std::string_view name) { return std::ranges::count(data_extensions, extension_of(name)) > 0; }

/// Returns the words of a name, letters alone, in lower case.
std::set<std::string> words_of(std::string_view name) {
  std::string spaced = data::lower_case(name);
  std::ranges::replace_if(
      spaced, [](unsigned char c) { return std::isalpha(c) == 0; }, ' ');
  std::set<std::string> words;
  for (const std::string_view word : split(spaced, ' ')) words.emplace(word);
  return words;
}

/// Returns whether the name of a file, with its folders, names a part of a data set.
bool belongs(std::string_view name, std::string_view part) {
  const std::set<std::string> words = words_of(name);
  const auto has = [&](std::initializer_list<const char*> any) {
    return std::ranges::any_of(any, [&](const char* word) { return words.contains(word); });
  };
  if (part == "validation") return has({"val", "valid", "validation", "dev", "development"});
  return has({std::string(part).c_str()}) && !words.contains("auxiliary");
}

/// Appends the data files in a folder and the folders in it, to `depth` levels.
void append_files(const std::string& folder, int depth, std::vector<std::string>& files) {
  for (const std::string& name : io::names_in(folder)) {
    const std::string path = folder + "/" + name;
    if (io::is_folder(path)) {
      if (depth > 0) append_files(path, depth - 1, files);
    } else if (is_data_file(name)) {
      files.push_back(path);
    }
  }
}

/// Returns the subject that the name of one of MMLU's original files begins with: "anatomy" of "anatomy_test.csv".
std::string subject_of(std::string_view path) {
  std::string_view name = name_of_file(path);
  name = name.substr(0, name.find('.'));
  for (const std::string_view part : {"_test", "_dev", "_val"}) {
    if (name.ends_with(part)) name.remove_suffix(part.size());
  }
  return std::string(name);
}

/// Throws DataError if a file is a piece, PREFIX-00000-of-00002.EXTENSION, and others of it are missing.
void check_pieces(const std::vector<std::string>& files) {
  constexpr std::string_view between = "-of-";
  std::map<std::pair<std::string, std::size_t>, std::set<std::size_t>> pieces;  // by prefix and number of pieces
  for (const std::string& file : files) {
    const std::string_view name = name_of_file(file);
    const std::size_t at = name.find(between);
    if (at == name.npos || at == 0) continue;
    const std::size_t begin = name.rfind('-', at - 1);
    if (begin == name.npos) continue;
    const std::string_view rest = name.substr(at + between.size());
    const auto number = parse_number<std::size_t>(name.substr(begin + 1, at - begin - 1));
    const auto count = parse_number<std::size_t>(rest.substr(0, rest.find_first_not_of("0123456789")));
    if (number && count) pieces[{file.substr(0, file.size() - name.size() + begin), *count}].insert(*number);
  }
  for (const auto& [prefix_and_count, numbers] : pieces) {
    TRIREME_CHECK(numbers.size() == prefix_and_count.second, DataError,
                  "{}: {} of its {} pieces are there. Get all of them", prefix_and_count.first, numbers.size(),
                  prefix_and_count.second);
  }
}

/// Returns whether these are one file, or pieces of one.
bool are_one(const std::vector<std::string>& files) {
  std::set<std::string> wholes;
  for (const std::string& file : files) {
    const std::string_view name = name_of_file(file);
    const std::size_t at = name.find("-of-"), begin = name.substr(0, at).rfind('-');
    const bool is_piece = at != name.npos && begin != name.npos;
    wholes.insert(is_piece ? file.substr(0, file.size() - name.size() + begin) : file);
  }
  return wholes.size() == 1;
}

/// Adds the labels in the file beside `path`, one a line, to documents without.
void add_labels(const Benchmark& benchmark, const std::string& path, std::vector<TaskDocument>& documents) {
  if (benchmark.answer.empty() || documents.empty() || !documents.front().found(benchmark.answer).empty()) return;
  const std::string labels = path.substr(0, path.find('.', path.rfind('/') + 1)) + "-labels.lst";
  if (!io::is_there(labels)) return;
  const std::string text = read_text_file(labels);
  const std::vector<std::string_view> lines = split(text, '\n');
  TRIREME_CHECK(lines.size() == documents.size(), DataError, "{} has {} labels for the {} examples of {}", labels,
                lines.size(), documents.size(), path);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    documents[i].set(std::string(split(benchmark.answer, '|').front()), std::string(data::stripped(lines[i])));
  }
}

std::vector<TaskDocument> read_file(const Benchmark& benchmark, const std::string& path, data::BadLines& bad_lines) {
  const std::string extension = extension_of(path);
  if (extension == ".csv") return data::documents_of_csv(read_text_file(path), path, subject_of(path));
  if (extension == ".txt" || extension == ".raw" || extension == ".tokens") {
    const std::string text = read_text_file(path);
    return benchmark.kind == data::BenchmarkKind::pages ? data::documents_of_pages(text, path)
                                                        : data::documents_of_lines(text, path);
  }
  std::vector<TaskDocument> documents;
  for_each_json_line(path, bad_lines, [&](const std::string& line, std::int64_t, const std::string& where) {
    documents.push_back(io::json_document(line, where));
  });
  add_labels(benchmark, path, documents);
  return documents;
}

}  // namespace

std::vector<std::string> benchmark_files(const Benchmark& benchmark, const std::string& path, std::string_view part) {
  if (!io::is_folder(path + "/.")) return {path};
  const std::string name(benchmark.name);
  std::vector<std::string> files, found;
  constexpr int depth = 2;  // MMLU's data/test
  if (io::is_folder(path + "/" + name + "/.")) {
    append_files(path + "/" + name, depth, files);
  } else {
    append_files(path, depth, files);
    const auto is_named = [&](const std::string& file) { return name_of_file(file).starts_with(name + "."); };
    if (std::ranges::any_of(files, is_named)) std::erase_if(files, std::not_fn(is_named));
  }
  TRIREME_CHECK(!files.empty(), DataError, "{} holds no data file of {}: their names end with {}", path, name,
                fmt::join(data_extensions, ", "));
  const auto is_other = [&](const std::string& file) {
    return std::ranges::any_of(std::initializer_list<const char*>{"train", "validation", "test"}, [&](const char* any) {
      return any != part && belongs(name_of_file(file), any) && !belongs(name_of_file(file), part);
    });
  };
  if (files.size() == 1 && part == benchmark.split && !is_other(files.front())) {
    check_pieces(files);
    return files;
  }
  std::ranges::copy_if(files, std::back_inserter(found),
                       [&](const std::string& file) { return belongs(file.substr(path.size()), part); });
  const bool is_one = are_one(found) || !benchmark.group_field.empty();
  check_pieces(found);
  TRIREME_CHECK(!found.empty() && is_one, DataError,
                "{}: {} of the {} data files ({}) there is named as the {} data of {}. Try the file itself", path,
                found.empty() ? "none" : "more than one", files.size(),
                fmt::join(files | std::views::transform(name_of_file) | std::views::take(5), ", "), part, name);
  return found;
}

std::vector<TaskDocument> read_documents(const Benchmark& benchmark, const std::vector<std::string>& files,
                                         data::BadLines& bad_lines) {
  std::vector<TaskDocument> documents;
  for (const std::string& file : files)
    std::ranges::move(read_file(benchmark, file, bad_lines), std::back_inserter(documents));
  return documents;
}

}  // namespace trireme::app
