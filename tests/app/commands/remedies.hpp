#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <memory>

#include "tests/app/commands/command_test.hpp"
#include "tests/app/words.hpp"

namespace trireme::app {

/// A remedy in a message, the command that prints it, and the command that follows it.
struct FollowedRemedy {
  const char* message;
  const char* wrong;
  const char* right;
};

/// Commands that begin several rows, under the words that stand for them.
inline const std::map<std::string, std::string> beginnings = {
    {"$SAME",
     "train --num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 16 --data-path corpus.h5 "
     "--global-batch-size 4 --train-iters 8 --eval-iters 0"},
    {"$MORE", "$SAME --lr 0.01"},
    {"$ON",
     "train --num-layers 2 --hidden-size 16 --num-attention-heads 4 --train-iters 1 --lr 0.01 --eval-iters 0 "
     "--dry-run"},
    {"$BERT", "$ON --model-type bert --seq-length 32"},
    {"$GENERATE", "generate --load saved --max-new-tokens 4"},
    {"$EVAL", "eval --load saved --micro-batch-size 4"},
    {"$SHOWN", "eval --load wide --seq-length 512 --limit 1 --long-examples cut"},
    {"$RACE",
     "finetune --task RACE --train-data race.jsonl --valid-data race.jsonl --lr 0.01 --epochs 1 --seq-length 32 "
     "--global-batch-size"},
    {"$SST",
     "finetune --task SST-2 --lr 0.01 --epochs 1 --seq-length 32 --global-batch-size 2 --pretrained-checkpoint bert "
     "--train-data good.tsv"},
    {"$SQUAD",
     "finetune --task SQUAD --train-data squad.json --valid-data squad.json --lr 0.01 --epochs 1 --global-batch-size 1 "
     "--pretrained-checkpoint"},
    {"$BYTES", "corpus build --tokenizer bytes --input"},
    {"$PIECES", "corpus build --tokenizer wordpiece --vocab-file vocab.txt --input"},
    {"$PLAN", "plan --model gpt2-124m --global-batch-size 96"},
    {"$IMPORT", "checkpoint import --no-tokenizer --output"}};

/// Returns the words of a command, with `beginnings` and FIXTURES/ written out. '' is an empty word.
inline Words words_of(const std::string& text) {
  Words words;
  for (std::string word : Words(text)) {
    const auto begins = beginnings.find(word);
    if (begins != beginnings.end()) {
      words = words + words_of(begins->second);
      continue;
    }
    if (word.starts_with("FIXTURES/")) word.replace(0, 8, TRIREME_FIXTURES);
    words.push_back(word == "''" ? "" : word);
  }
  return words;
}

/// All tests share a folder of corpora and checkpoints.
class RemediesOfFiles : public CommandTest {
 protected:
  RemediesOfFiles() : CommandTest("") {
    if (is_first_) folder() = std::make_unique<test::TemporaryDirectory>();
    std::filesystem::current_path(folder()->path());
  }
  ~RemediesOfFiles() override { std::filesystem::current_path(home_); }
  static void TearDownTestSuite() { folder().reset(); }
  void SetUp() override {
    if (!is_first_) return;
    make_files();
    make_checkpoints();
  }

  /// Runs a command; its log is in `log_`, with the error.
  int run_line(const std::string& line) {
    testing::internal::CaptureStderr();
    const int code = run(words_of(line));
    log_ = with_flags(testing::internal::GetCapturedStderr()) + message_;
    return code;
  }
  void expect_done(const std::string& line, int code = 0) { EXPECT_EQ(run_line(line), code) << line << "\n" << log_; }
  void expect_followed(std::initializer_list<FollowedRemedy> remedies) {
    for (const FollowedRemedy& each : remedies) {
      SCOPED_TRACE(each.message);
      EXPECT_NE(run_line(each.wrong), 0) << each.wrong;
      EXPECT_THAT(log_, testing::HasSubstr(each.message));
      expect_done(each.right);
    }
  }
  /// Likewise for warnings of commands that succeed or stop early: followed, they are not repeated.
  void expect_ended(std::initializer_list<FollowedRemedy> remedies) {
    for (const FollowedRemedy& each : remedies) {
      SCOPED_TRACE(each.message);
      EXPECT_THAT(run_line(each.wrong), testing::AnyOf(0, 75)) << log_;
      EXPECT_THAT(log_, testing::HasSubstr(each.message));
      expect_done(each.right);
      EXPECT_THAT(log_, testing::Not(testing::HasSubstr(each.message)));
    }
  }
  void write(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path("./" + name).parent_path());
    std::ofstream(name, std::ios::binary) << bytes;
  }

  std::string log_;

 private:
  const std::filesystem::path home_ = std::filesystem::current_path();
  const bool is_first_ = folder() == nullptr;

  static std::unique_ptr<test::TemporaryDirectory>& folder() {
    static std::unique_ptr<test::TemporaryDirectory> shared;
    return shared;
  }

  void make_files() {
    std::string text, sentences, vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nship\ncrew\nrows\noars\n.\n?\n";
    for (int d = 0; d < 150; ++d) {
      text += "{\"text\": \"";
      sentences += "{\"text\": \"";
      for (int i = 0; i < 6 + d % 12; ++i) {
        const std::string rest = fmt::format("he {} rows {} oars. ", (d + i) % 3 == 0 ? "crew" : "ship", (d * i) % 10);
        text += "t" + rest;
        sentences += "T" + rest;
      }
      text += "\"}\n";
      sentences += "\"}\n";
    }
    for (char c = 'a'; c <= 'z'; ++c) vocabulary += fmt::format("{}\n", c);
    for (char c = '0'; c <= '9'; ++c) vocabulary += fmt::format("{}\n", c);
    write("corpus.jsonl", text);
    write("sentences.jsonl", sentences);
    write("vocab.txt", vocabulary);
    expect_done("$BYTES corpus.jsonl --output corpus.h5 --append-eod");
    expect_done("$PIECES sentences.jsonl --output flat.h5");
    expect_done("$PIECES sentences.jsonl --output bert.h5 --split-sentences");
  }
  void make_checkpoints() {
    for (const char* run : {"saved", "weights --no-save-optim", "dense --disable-bias-linear",
                            "experts --disable-bias-linear --num-experts 4"}) {
      expect_done(fmt::format("$MORE --exit-interval 4 --save {}", run), 75);
    }
    expect_done("$MORE --save wide --max-position-embeddings 512");
    expect_done(
        "train --model-type bert --num-layers 2 --hidden-size 16 --num-attention-heads 4 --train-iters 1 --lr 0.01 "
        "--eval-iters 0 --seq-length 32 --data-path bert.h5 --save bert");
  }
};

}  // namespace trireme::app
