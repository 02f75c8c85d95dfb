// Corpora that contradict themselves: intact files, refused by their content.
#include <gmock/gmock.h>

#include "io/corpus/corpus_store.hpp"
#include "io/h5/file.hpp"
#include "src/base/hash.hpp"
#include "tests/io/corpus/corpus_files.hpp"

namespace trireme::io {
namespace {

/// Content of a corpus in an intact file, and the words of the error that refuses it.
struct Lie {
  std::string words;
  std::int64_t vocabulary_size = 300;
  std::int64_t max_id = 3;
  std::vector<std::int64_t> offsets{0, 2, 4};
  std::vector<std::uint16_t> tokens{1, 2, 3, 0};
  std::vector<std::int64_t> sentences{};  ///< offsets; none where empty
  std::vector<std::int64_t> learned{};    ///< begins and ends of learned ranges; none where empty
};
class LyingCorpus : public CorpusFiles, public ::testing::WithParamInterface<Lie> {};

TEST_P(LyingCorpus, InconsistentCorpusIsRefused) {
  const Lie& lie = GetParam();
  const std::string path = directory_ / "corpus.h5";
  {
    const std::string digests = digest(lie.tokens.data(), lie.tokens.size() * 2);
    Digest table;
    table.update(lie.offsets.data(), lie.offsets.size() * 8);
    table.update(lie.sentences.data(), lie.sentences.size() * 8);
    table.update(lie.learned.data(), lie.learned.size() * 8);
    table.update(digests.data(), digests.size());
    h5::File file = h5::File::create(path);
    const auto add = [&](const char* name, const auto& values) {
      const ConstTensorView view(values.data(), {std::ssize(values)});
      file.create_dataset(name, view.dtype(), view.shape()).write(view);
    };
    add("/tokens", lie.tokens);
    add("/document_offsets", lie.offsets);
    if (!lie.sentences.empty()) add("/sentence_offsets", lie.sentences);
    if (!lie.learned.empty()) {
      const ConstTensorView ranges(lie.learned.data(), {std::ssize(lie.learned) / 2, 2});
      file.create_dataset(learned_ranges_name, ranges.dtype(), ranges.shape()).write(ranges);
    }
    write_bytes(file, "/block_digests", digests, {std::ssize(digests)});
    const std::string payload = narrow_->payload();
    write_bytes(file, "/tokenizer_payload", payload, {std::ssize(payload)});
    write_corpus_header(file, corpus_format_name,
                        {.tokenizer = "bytes",
                         .tokenizer_digest = narrow_->digest(),
                         .tokenizer_payload = payload,
                         .content_digest = table.hex(),
                         .vocabulary_size = lie.vocabulary_size,
                         .end_of_document = 256,
                         .max_id = lie.max_id});
    file.close();
  }
  EXPECT_THAT([&] { CorpusStore(path).verify(); },
              ::testing::ThrowsMessage<DataError>(::testing::HasSubstr(lie.words)));
}

INSTANTIATE_TEST_SUITE_P(
    Corpora, LyingCorpus,
    ::testing::Values(Lie{.words = "is uint16 [4], but must be uint32 in 1 column", .vocabulary_size = 70000},
                      Lie{.words = "in a vocabulary of 100 ids", .vocabulary_size = 100, .max_id = 100},
                      Lie{.words = "the tokenizer in", .vocabulary_size = 300},
                      Lie{.words = "largest id 3", .vocabulary_size = 257, .max_id = 2},
                      Lie{.words = "holds token 300", .vocabulary_size = 257, .tokens = {1, 2, 300, 0}},
                      Lie{.words = "document offsets go from 0 to 5", .offsets = {0, 2, 5}},
                      Lie{.words = "document 1 begins at token 3 and ends at 2", .offsets = {0, 3, 2, 4}},
                      Lie{.words = "document offsets go from 1 to 4", .offsets = {1, 2, 4}},
                      Lie{.words = "the sentences of", .vocabulary_size = 257, .sentences = {0, 1, 3, 4}},
                      Lie{.words = "go from 2 to 5 after 0, of 4 tokens", .vocabulary_size = 257, .learned = {2, 5}},
                      Lie{.words = "go from 1 to 3 after 2", .vocabulary_size = 257, .learned = {0, 2, 1, 3}},
                      Lie{.words = "go from 1 to 1 after 0", .vocabulary_size = 257, .learned = {1, 1}}));

}  // namespace
}  // namespace trireme::io
