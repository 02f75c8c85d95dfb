#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "io/corpus/corpus_store.hpp"
#include "io/corpus/corpus_writer.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {

inline std::vector<std::int32_t> ids_of(const CorpusStore& store) {
  std::vector<std::int32_t> ids;
  data::read_tokens(store, 0, store.token_count(),
                    [&](const auto& span, std::int64_t) { ids.insert(ids.end(), span.begin(), span.end()); });
  return ids;
}

/// Small corpora in a temporary folder.
class CorpusFiles : public ::testing::Test {
 protected:
  using Documents = std::vector<std::vector<std::int32_t>>;

  std::string corpus(const std::string& name, const Documents& documents, const data::Tokenizer& tokenizer) {
    CorpusWriter writer(directory_ / name, tokenizer);
    for (const auto& document : documents) {
      writer.append(document);
      writer.end_document();
    }
    writer.finish();
    return directory_ / name;
  }
  std::string content(const std::string& name) const { return test::content_of(directory_ / name); }

  test::TemporaryDirectory directory_;
  std::unique_ptr<data::Tokenizer> narrow_ = data::make_byte_tokenizer();
  std::unique_ptr<data::Tokenizer> wide_ = data::make_null_tokenizer(100'000, 99'999);
};

}  // namespace trireme::io
