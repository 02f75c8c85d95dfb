// Errors about corpora and checkpoints name a remedy. Followed, it leads to no further error. Errors about the options
// of train: tests/app/run_config.
#include "tests/app/commands/remedies.hpp"

namespace trireme::app {
namespace {

TEST_F(RemediesOfFiles, OfACheckpointLeadToARun) {
  expect_followed({
      {"Give its options, or --use-checkpoint-args instead of them",
       "$MORE --load saved --group-query-attention --num-query-groups 2",
       "train --use-checkpoint-args --seq-length 16 --data-path corpus.h5 --global-batch-size 4 --train-iters 8 "
       "--eval-iters 0 --lr 0.01 --load saved"},
      {"--use-checkpoint-args needs --load", "$SAME --lr 0.01 --use-checkpoint-args",
       "$SAME --lr 0.01 --use-checkpoint-args --load saved"},
      {"Try --no-load-optim to resume with new moments", "$MORE --load weights",
       "$MORE --load weights --no-load-optim"},
      {"or --finetune to start a new run", "$MORE --load weights", "$MORE --load weights --finetune"},
      {"give --load of its checkpoint, with --finetune", "$MORE --lora-rank 2",
       "$MORE --lora-rank 2 --load weights --finetune"},
      {"Try --optimizer adam", "$MORE --load saved --optimizer sgd", "$MORE --load saved --optimizer adam"},
      {"--no-load-optim for new moments", "$MORE --load saved --optimizer sgd",
       "$MORE --load saved --optimizer sgd --no-load-optim"},
      {"or --override-opt-param-scheduler to use the command line's", "$SAME --load saved --lr 0.02",
       "$SAME --load saved --lr 0.02 --override-opt-param-scheduler"},
      {"or --use-checkpoint-opt-param-scheduler to use the checkpoint's", "$SAME --load saved --lr 0.02",
       "$SAME --load saved --lr 0.02 --use-checkpoint-opt-param-scheduler"},
      {"or --allow-new-data to continue with these", "$MORE --load saved --seed 7",
       "$MORE --load saved --seed 7 --allow-new-data"},
      {"--ckpt-step 3 in saved; its steps are: 4", "$EVAL --ckpt-step 3 --data-path corpus.h5",
       "$EVAL --ckpt-step 4 --data-path corpus.h5"},
      {"--ckpt-step 3: saved/step-00000004 is the folder of step-00000004. Try --load with the folder above it",
       "eval --load saved/step-00000004 --ckpt-step 3 --data-path corpus.h5",
       "$EVAL --ckpt-step 4 --data-path corpus.h5"},
      {"Try --load with the folder above it", "generate --load saved/step-00000004 --follow --prompt a",
       "$GENERATE --prompt a"},
      {"leave the option out, or give another --load",
       "$SAME --lr 0.01 --use-checkpoint-args --load saved --model-type bert",
       "$SAME --lr 0.01 --use-checkpoint-args --load saved"},
      {"--ddp-bucket-size needs --use-distributed-optimizer",
       "checkpoint reshard --load saved --save r1 --ddp-bucket-size 100",
       "checkpoint reshard --load saved --save r1 --ddp-bucket-size 100 --use-distributed-optimizer"},
  });
}

TEST_F(RemediesOfFiles, OfNumbersThatAreNotFiniteLeadToFiniteOnes) {
  expect_done(
      "train --num-layers 2 --hidden-size 16 --num-attention-heads 4 --seq-length 16 --data-path corpus.h5 "
      "--train-iters 1 "
      "--eval-iters 0 --lr 1e38 --lr-decay-style constant --save diverged");
  expect_followed({
      {"in a second run of the step, too", "$SAME --lr 1e38", "$SAME --lr 0.01"},
      {"Try a lower --lr, check the data, or continue from an earlier checkpoint",
       "$SAME --lr 1e38 --no-check-for-nan-in-loss-and-grad --max-skipped 2",
       "$SAME --lr 0.01 --no-check-for-nan-in-loss-and-grad --max-skipped 2"},
      {", train in bf16, lower --min-loss-scale", "$SAME --lr 1e38 --fp16 --initial-loss-scale 1 --max-skipped 2",
       "$SAME --lr 0.01 --bf16"},
      {"load an earlier step, or evaluate in fp32", "eval --load diverged --data-path corpus.h5",
       "$EVAL --data-path corpus.h5 --dtype fp32"},
      {"Try an earlier checkpoint, or a wider --dtype", "generate --load diverged --prompt a", "$GENERATE --prompt a"},
  });
}

TEST_F(RemediesOfFiles, OfConversationsLeadToACorpusAndARun) {
  std::string talks;
  for (int i = 0; i < 9; ++i) {
    talks += R"([{"role": "user", "content": "the ship?"}, {"role": "assistant", "content": "rows."}])"
             "\n";
  }
  write("talk.jsonl", talks);
  write("marked.jinja",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}.");
  write("prompt.jinja", "{{ '>' if add_generation_prompt }}");
  expect_followed({
      {"put {% generation %} and {% endgeneration %} around the assistant's words in the template",
       "$BYTES talk.jsonl --output talk.h5 --chat --chat-template prompt.jinja",
       "$BYTES talk.jsonl --output talk.h5 --chat --chat-template marked.jinja"},
      {"keep them apart, and give both to --data-path", "corpus merge corpus.h5 talk.h5 --output merged.h5",
       "$ON --seq-length 16 --data-path corpus.h5 talk.h5"},
      {"Try another --split, a longer --seq-length or more text", "$ON --seq-length 4 --data-path talk.h5",
       "$ON --seq-length 16 --data-path talk.h5"},
  });
  expect_ended({{"longer than a sample. Try a longer --seq-length", "$ON --seq-length 12 --data-path talk.h5",
                 "$ON --seq-length 16 --data-path talk.h5"}});
}

TEST_F(RemediesOfFiles, OfWarningsEndThem) {
  write("file", "");
  expect_ended({
      {"the weights are saved without the optimizer's state: continue with --no-load-optim",
       "$MORE --no-save-optim --save light --kill-switch-path file", "$MORE --load light --no-load-optim"},
      {"train it with --load other --finetune --use-checkpoint-args", "$IMPORT other --input FIXTURES/huggingface/gpt2",
       "train --load other --finetune --use-checkpoint-args --mock-data --train-iters 1 --lr 0.01 --eval-iters 0"},
  });
}

TEST_F(RemediesOfFiles, OfUpcyclingLeadToARun) {
  const std::string experts = "$MORE --disable-bias-linear --num-experts 4 --moe-use-upcycling";
  const std::string narrow = experts + " --load dense --moe-ffn-hidden-size 8",
                    right = experts + " --load dense --moe-ffn-hidden-size 64",
                    shared = experts + " --load dense --moe-shared-expert-intermediate-size 8",
                    plain = experts + " --load dense", with_experts = experts + " --load experts",
                    with_biases = experts + " --load saved";
  expect_followed({
      {"give --num-experts and --disable-bias-linear", "$MORE --moe-use-upcycling --load dense", plain.c_str()},
      {"give --moe-ffn-hidden-size 64", narrow.c_str(), right.c_str()},
      {"leave out --moe-shared-expert-intermediate-size", shared.c_str(), plain.c_str()},
      {"leave out this option, and give --finetune for a new run", with_experts.c_str(),
       "$MORE --disable-bias-linear --num-experts 4 --finetune --load experts"},
      {"Try a model that was trained with --disable-bias-linear", with_biases.c_str(), plain.c_str()},
  });
}

TEST_F(RemediesOfFiles, OfACorpusLeadToARun) {
  write("text.txt", "the ship rows");
  write("lines.txt", "{\"text\": \"the ship rows 7 oars. the crew rows 7 oars.\"}\n");
  write("empty.h5", "");
  write("table.orc", std::string("ORC\x15\x04\x00\x01", 7));
  write("outer.ini", "config = inner.ini\n");
  write("inner.ini", "lr = 0.01\n");
  expect_done("corpus export corpus.h5 --output-prefix tokens");
  expect_done("corpus import tokens --output large.h5 --tokenizer null --vocab-size 60000");
  expect_followed({
      {"text.txt is text, not a corpus. Make one from it: trireme corpus build --input text.txt --output CORPUS.h5 "
       "--tokenizer NAME",
       "$ON --seq-length 16 --data-path text.txt", "corpus build --input text.txt --output new1.h5 --tokenizer bytes"},
      {"corpus.jsonl is JSON lines, not a corpus. Make one from it: trireme corpus build --input corpus.jsonl --output",
       "$ON --seq-length 16 --data-path corpus.jsonl", "$BYTES corpus.jsonl --output new2.h5"},
      {"lines.txt is JSON lines, not a corpus. Make one from it: trireme corpus build --input lines.txt --input-format "
       "json --output CORPUS.h5",
       "$EVAL --data-path lines.txt", "$BYTES lines.txt --input-format json --output new3.h5"},
      {"tokens holds another program's tokens, not a corpus. Make one from it: trireme corpus import tokens --output "
       "CORPUS.h5 --tokenizer NAME",
       "$ON --seq-length 16 --data-path tokens", "corpus import tokens --output new4.h5 --tokenizer bytes"},
      {"Make a corpus from text by trireme corpus build", "corpus inspect empty.h5",
       "$BYTES text.txt --output new5.h5"},
      {"table.orc is not a corpus, its first bytes are those of ORC: convert it to JSON lines, and make a corpus of "
       "the "
       "result by trireme corpus build",
       "corpus inspect table.orc", "$BYTES lines.txt --input-format json --output new6.h5"},
      {"Try to build it again with --split-sentences", "$BERT --data-path flat.h5", "$BERT --data-path bert.h5"},
      {"Try to build it again with --tokenizer wordpiece --split-sentences", "$BERT --data-path corpus.h5",
       "$BERT --data-path bert.h5"},
      {"or --sampling shuffled",
       "$ON --seq-length 16 --data-path corpus.h5 --global-batch-size 3000 --sampling sequential",
       "$ON --seq-length 16 --data-path corpus.h5 --global-batch-size 3000 --sampling shuffled"},
      {"Try fewer iterations",
       "$ON --seq-length 16 --data-path corpus.h5 --global-batch-size 3000 --sampling sequential",
       "$ON --seq-length 16 --data-path corpus.h5 --global-batch-size 90 --sampling sequential"},
      {"Try another --split, --split-by tokens", "$MORE --split 1,998,1 --split-by documents",
       "$MORE --split 1,998,1 --split-by tokens"},
      {"a shorter --seq-length or more text", "$ON --seq-length 65536 --data-path corpus.h5",
       "$ON --seq-length 64 --data-path corpus.h5"},
      {"Try 969,30,1", "corpus split corpus.h5 --split 1,x --output-prefix part",
       "corpus split corpus.h5 --split 969,30,1 --output-prefix part"},
      {"Try fractions, such as 0.7 and 0.3", "$ON --seq-length 16 --data-path 1e308 corpus.h5 1e308 corpus.h5",
       "$ON --seq-length 16 --data-path 0.7 corpus.h5 0.3 corpus.h5"},
      {"Build them with the same tokenizer", "$ON --seq-length 16 --data-path corpus.h5 flat.h5",
       "$ON --seq-length 16 --data-path flat.h5 bert.h5"},
      {"build the corpus with the model's tokenizer, or give --vocab-size 60000",
       "$ON --model gpt2-124m --seq-length 16 --data-path large.h5",
       "$ON --model gpt2-124m --seq-length 16 --data-path large.h5 --vocab-size 60000"},
      {"Leave the option out, or give what was built with that tokenizer", "$MORE --tokenizer-type GPT2BPETokenizer",
       "$MORE"},
      {"Try another, or the number of an unused id below 300; --vocab-size can add some",
       "$MORE --fim-rate 0.5 --vocab-size 300",
       "$MORE --fim-rate 0.5 --vocab-size 300 --fim-prefix-token 290 --fim-middle-token 291 --fim-suffix-token 292"},
      {"--tokenizer null needs --vocab-size", "corpus import tokens --output new7.h5 --tokenizer null",
       "corpus import tokens --output new7.h5 --tokenizer null --vocab-size 257"},
      {"Try another --split or more text", "$BERT --data-path bert.h5 --split 0,0,1 --split-by documents",
       "$BERT --data-path bert.h5 --split 90,9,1 --split-by documents"},
      {"give --config for each, on the command line", "$SAME --config outer.ini", "$SAME --config inner.ini"},
      {"use --backend cpu", "$MORE --backend cuda --dtype fp64", "$MORE --backend cpu --dtype fp64"},
  });
}

TEST_F(RemediesOfFiles, OfATextLeadToACorpus) {
  write("latin.txt", "caf\xe9 rows\n");
  write("marked.txt", "\xef\xbb\xbfthe ship\n");
  write("bad.jsonl", "{\"text\": \"a good line\"}\n{\"tex\n");
  write("short.jsonl", "{\"text\": \"a b c d e f g h\"}\n");
  std::string document;
  for (int i = 0; i < 30000; ++i) document += "the ship rows 7 oars and the crew rows 8\n";
  write("document.txt", document);
  write("linked.jsonl", "{\"text\": \"the ship rows\", \"link\": \"a.example\"}\n");
  write("hosts.txt", "b.example\n");
  write("english.jsonl",
        "{\"text\": \"The crew of the old ship rows every morning, and the captain writes down how far they came.\"}\n"
        "{\"text\": \"In the evening they talk about the harbours which they have seen, and about the weather.\"}\n");
  expect_done("corpus sample corpus.h5 --share 0.5 --output other.h5");
  expect_done("corpus sample other.h5 --share 0.5 --view --output view.h5");
  std::filesystem::remove("other.h5");
  expect_followed({
      {"Try another --json-key", "$BYTES sentences.jsonl --output x.h5 --json-key body",
       "$BYTES sentences.jsonl --output x.h5 --json-key text"},
      {"or keep such bytes as they are with --invalid-utf8 keep", "$PIECES latin.txt --output l1.h5",
       "$PIECES latin.txt --output l1.h5 --invalid-utf8 keep"},
      {"byte-order mark, which would become part of the text; remove it (sed -i '1s/^\\xEF\\xBB\\xBF//' FILE), or keep "
       "such bytes as they are with --invalid-utf8 keep",
       "$PIECES marked.txt --output l2.h5", "$PIECES marked.txt --output l2.h5 --invalid-utf8 keep"},
      {"--max-bad-lines allows more", "$BYTES bad.jsonl --output l3.h5 --on-bad-line skip --max-bad-lines 0",
       "$BYTES bad.jsonl --output l3.h5 --on-bad-line skip --max-bad-lines 1"},
      {"bad lines that --max-bad-lines allows",
       "corpus clean --input bad.jsonl --output l8.jsonl --min-tokens 0 --on-bad-line skip --max-bad-lines 0",
       "corpus clean --input bad.jsonl --output l8.jsonl --min-tokens 0 --on-bad-line skip --max-bad-lines 1"},
      {"where it is a corpus, give it to trireme corpus merge", "$BYTES corpus.h5 --output l9.h5",
       "corpus merge corpus.h5 --output l9.h5"},
      {"--max-line allows more", "$BYTES corpus.jsonl --output l4.h5 --max-line 20",
       "$BYTES corpus.jsonl --output l4.h5 --max-line 2000"},
      {"--max-line allows more", "tokenizer train --input corpus.jsonl --output l5 --vocab-size 260 --max-line 20",
       "tokenizer train --input corpus.jsonl --output l5 --vocab-size 260 --max-line 2000"},
      {"--max-line allows more, --input-format lines makes each line a document",
       "corpus overlap --corpus document.txt --test short.jsonl --max-line 1100000",
       "corpus overlap --corpus document.txt --test short.jsonl --max-line 1100000 --input-format lines"},
      {"Leave the option out, or give a tokenizer.json", "$BYTES corpus.jsonl --output l6.h5 --prepend-bos",
       "$BYTES corpus.jsonl --output l6.h5"},
      {"--tokenizer gpt2 needs --merge-file", "corpus build --input corpus.jsonl --output l7.h5 --tokenizer gpt2",
       "$BYTES corpus.jsonl --output l7.h5"},
      {"leave out --tokenizer", "tokenizer encode --tokenizer bytes --data-path corpus.h5 --input corpus.jsonl",
       "tokenizer encode --data-path corpus.h5 --input corpus.jsonl"},
      {"needs --language",
       "corpus clean --input english.jsonl --output c1.jsonl --min-tokens 0 --language-confidence 0.5",
       "corpus clean --input english.jsonl --output c1.jsonl --min-tokens 0 --language-confidence 0.5 --language en"},
      {"Try --language en, or leave it out",
       "corpus clean --input english.jsonl --output c2.jsonl --min-tokens 0 --language ''",
       "corpus clean --input english.jsonl --output c2.jsonl --min-tokens 0 --language en"},
      {"has an address under the key 'url': give the right one by --url-key",
       "corpus clean --input linked.jsonl --output c4.jsonl --min-tokens 0 --blocked-urls hosts.txt",
       "corpus clean --input linked.jsonl --output c4.jsonl --min-tokens 0 --blocked-urls hosts.txt --url-key link"},
      {"has a title under the key 'title': give the right one by --title-key",
       "corpus clean --input linked.jsonl --output c8.jsonl --min-tokens 0 --blocked-titles hosts.txt",
       "corpus clean --input linked.jsonl --output c8.jsonl --min-tokens 0 --blocked-titles hosts.txt --title-key "
       "link"},
      {"Try en, de, zh or zh-Hant", "corpus clean --input english.jsonl --output c3.jsonl --min-tokens 0 --language xx",
       "corpus clean --input english.jsonl --output c3.jsonl --min-tokens 0 --language zh-Hant,en"},
      {"needs --output", "corpus overlap --corpus english.jsonl --test corpus.jsonl --max-cuts 3",
       "corpus overlap --corpus english.jsonl --test corpus.jsonl --max-cuts 3 --output o1.jsonl"},
      {"several corpora need --statistics", "corpus inspect corpus.h5 flat.h5",
       "corpus inspect corpus.h5 flat.h5 --statistics"},
      {"Try a greater one", "corpus sample corpus.h5 --share 0.0000001 --output c4.h5",
       "corpus sample corpus.h5 --share 0.5 --output c4.h5"},
      {"Build them with the same tokenizer", "corpus merge corpus.h5 flat.h5 --output c5.h5",
       "corpus merge corpus.h5 corpus.h5 --output c5.h5"},
      {"build both alike", "corpus merge flat.h5 bert.h5 --output c6.h5",
       "corpus merge bert.h5 bert.h5 --output c6.h5"},
      {"or make the view again", "corpus verify view.h5",
       "corpus sample corpus.h5 --share 0.5 --view --output view.h5"},
      {"needs --model-type bert", "corpus samples corpus.h5 --model-type gpt --seq-length 16 --mask-prob 0.3",
       "corpus samples bert.h5 --model-type bert --seq-length 32 --mask-prob 0.3 --count 1"},
  });
  EXPECT_NE(run_line("corpus clean --input latin.txt --output c7.jsonl --min-tokens 0"), 0);
  EXPECT_THAT(log_, testing::Not(testing::HasSubstr("--invalid-utf8")));  // an option that this command lacks
}

}  // namespace
}  // namespace trireme::app
