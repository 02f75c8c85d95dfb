#include "io/corpus/corpus_view.hpp"

#include <algorithm>
#include <filesystem>

#include "io/corpus/corpus_format.hpp"
#include "io/h5/file.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

fs::path whole_path(const std::string& path) { return fs::weakly_canonical(fs::absolute(path)); }

/// Returns the name of `path` in a view in `folder`: relative if it lies in or below that folder, so both can be moved.
std::string name_from(const std::string& folder, const std::string& path) {
  const fs::path whole = whole_path(path);
  const fs::path relative = whole.lexically_relative(folder);
  return relative.empty() || *relative.begin() == ".." ? whole.string() : relative.string();
}

template <class T>
void write(h5::File& file, const std::string& path, const T* values, const Shape& shape) {
  file.create_dataset(path, dtype_of<T>(), shape).write(ConstTensorView(values, shape));
}

}  // namespace

CorpusViewWriter::CorpusViewWriter(const std::string& path)
    : file_(path), folder_(whole_path(path).parent_path().string()) {}

void CorpusViewWriter::take_from(const prepare::CorpusSource& store) {
  store_ = &store;
  if (!info_) {
    info_ = store.info();
    has_sentences_ = !store.sentence_offsets().empty();
  }
  info_->max_id = std::max(info_->max_id, store.info().max_id);
  source_numbers_.clear();
  for (const data::TokenStore* source : store.token_owners()) {
    const std::string name = name_from(folder_, source->name());
    TRIREME_CHECK(name.find('\n') == name.npos, ConfigError, "a view cannot name {}: its path has a line break", name);
    const Source found{name, source->info().content_digest};
    const auto at = std::ranges::find(sources_, found);
    source_numbers_.push_back(at - sources_.begin());
    if (at == sources_.end()) sources_.push_back(found);
  }
}

void CorpusViewWriter::append(std::int64_t begin, std::int64_t end) {
  while (begin < end) {
    const prepare::CorpusSource::Stretch stretch = store_->stretch_at(begin);
    const std::int64_t size = std::min(stretch.size, end - begin);
    const std::int64_t source = source_numbers_[static_cast<std::size_t>(stretch.source)];
    const CorpusRun next{source, stretch.begin, tokens_};
    const bool goes_on = !runs_.empty() && runs_.back().source == source &&
                         runs_.back().begin + (tokens_ - runs_.back().first) == stretch.begin;
    if (!goes_on) runs_.push_back(next);
    tokens_ += size;
    begin += size;
  }
}

prepare::CorpusSize CorpusViewWriter::finish() {
  std::string sources;
  for (const Source& source : sources_) sources += source.content_digest + " " + source.path + "\n";
  Digest table;
  const auto add = [&](const auto& numbers) { table.update(numbers.data(), numbers.size() * sizeof(numbers[0])); };
  add(document_offsets_);
  if (has_sentences_) add(sentence_offsets_);
  add(runs_);
  for (const Source& source : sources_) table.update(source.content_digest.data(), source.content_digest.size());

  h5::File file = h5::File::create(file_.path());
  const auto write_text = [&](const std::string& path, const std::string& text) {
    write(file, path, reinterpret_cast<const std::uint8_t*>(text.data()), {std::ssize(text)});
  };
  write_text("/tokenizer_payload", info_->tokenizer_payload);
  write_text("/sources", sources);
  write(file, "/document_offsets", document_offsets_.data(), {std::ssize(document_offsets_)});
  if (has_sentences_) write(file, "/sentence_offsets", sentence_offsets_.data(), {std::ssize(sentence_offsets_)});
  write(file, "/runs", reinterpret_cast<const std::int64_t*>(runs_.data()), {std::ssize(runs_), 3});
  h5::Object root = file.root();
  root.write_attribute("format", corpus_view_format_name);
  root.write_attribute("format_version", corpus_format_version);
  root.write_attribute("tokenizer", info_->tokenizer);
  root.write_attribute("tokenizer_digest", info_->tokenizer_digest);
  root.write_attribute("vocabulary_size", info_->vocabulary_size);
  root.write_attribute("end_of_document", info_->end_of_document);
  root.write_attribute("greatest_id", info_->max_id);
  root.write_attribute("table_digest", table.hex());
  file.close();
  file_.commit();
  return {documents(), tokens_};
}

}  // namespace trireme::io
