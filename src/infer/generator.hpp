#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/infer/decoder.hpp"
#include "src/infer/generation.hpp"

namespace trireme::infer {

/// Text for which the model's output is not finite.
struct Failure {
  std::int64_t prompt = 0;
  std::int64_t tokens = 0;
};

/// Settings of a Generator.
struct GeneratorUse {
  std::int64_t positions = 0;  ///< upper bound of the tokens of a prompt and its continuation
  bool together = true;        ///< the data ranks are one replica, which does the same work several times
  bool keeps_cache = false;    ///< a prompt uses the keys and values that the last one left; for a batch size of 1
};

/// Continues prompts on one replica of a model, several at a time.
class Generator {
 public:
  using Next = std::function<std::optional<Prompt>()>;
  using Done = std::function<void(const Prompt&, const Continuation&)>;

  /// `model` and `options` must live longer. EnvironmentError if the cache does not fit into memory. Collective.
  Generator(train::ParallelModel& model, Communicator& world, const GenerationOptions& options,
            const GeneratorUse& use);

  /// Continues the prompts that `next` returns, until there are no more or a text fails. Collective over the replica.
  std::optional<Failure> run(const Next& next, const Done& done);

  /// Time of this rank for prompts: their positions and the choices of the first new tokens.
  double prompts_s() const { return prompts_s_; }

 private:
  struct Text {
    Prompt prompt;
    Continuation continuation;
    bool finished = false;

    std::int64_t size() const { return std::ssize(prompt.tokens) + std::ssize(continuation.tokens); }
    /// Returns the latest `count` tokens, or all if there are fewer.
    std::vector<std::int32_t> latest(std::int64_t count) const;
  };

  /// Ends all texts if any rank was asked to.
  void interrupt();
  /// Runs the newest token of each text.
  void step();
  /// Chooses the next token of each text from `first` on, the texts of the last run.
  std::optional<Failure> choose(std::int64_t first);
  /// Sends data [size] of the choosing rank to the replica.
  template <class T>
  void broadcast(std::vector<T>& data, std::int64_t size);
  void append(Text& text, std::int32_t token);
  /// Delivers the finished texts and moves the last texts to their slots, so that the used slots stay contiguous.
  void release_finished(const Done& done);

  train::ParallelModel& model_;
  const GenerationOptions& options_;
  bool keeps_cache_;
  std::unique_ptr<Communicator> replica_;
  int chooser_;  // rank of the replica that samples: the first one of the last stage
  std::int64_t capacity_;
  Decoder decoder_;
  std::vector<Text> texts_;  // text i is in slot i of the cache
  double prompts_s_ = 0;
};

}  // namespace trireme::infer
