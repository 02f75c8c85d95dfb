// Errors of the commands that use models and runs name a remedy. Followed, it leads to no further error.
#include "tests/app/commands/remedies.hpp"

namespace trireme::app {
namespace {

TEST_F(RemediesOfFiles, OfATaskLeadToAResult) {
  write("body.jsonl", "{\"body\": \"a b\"}\n");
  write("long.jsonl", "{\"text\": \"the ship rows 7 oars. the crew rows 7 oars.\"}\n");
  write("text.txt", "the ship rows 7 oars. the crew rows 7 oars.\n");
  expect_followed({
      {"Try --long-examples cut", "$EVAL --task LAMBADA --data-path long.jsonl",
       "$EVAL --task LAMBADA --data-path long.jsonl --long-examples cut"},
      {"Try at most 16", "$EVAL --task WIKITEXT103 --data-path text.txt --overlapping-eval 17",
       "$EVAL --task WIKITEXT103 --data-path text.txt --overlapping-eval 16"},
      {"--overlapping-eval needs --task WIKITEXT103", "$EVAL --data-path text.txt --overlapping-eval 16",
       "$EVAL --data-path text.txt --overlapping-eval 16 --task WIKITEXT103"},
      {"--logits-file needs --task perplexity", "$EVAL --task WIKITEXT103 --data-path text.txt --logits-file l1.h5",
       "$EVAL --task perplexity --data-path corpus.h5 --logits-file l1.h5"},
      {"--logits-samples needs --logits-file", "$EVAL --data-path corpus.h5 --logits-samples 1",
       "$EVAL --data-path corpus.h5 --logits-samples 1 --logits-file l2.h5"},
      {"build the corpus with the model's tokenizer", "$EVAL --data-path flat.h5", "$EVAL --data-path corpus.h5"},
      {"Give --fewshot-data", "$SHOWN --task piqa --num-fewshot 1 --data-path FIXTURES/tasks/data/piqa/valid.jsonl",
       "$SHOWN --task piqa --num-fewshot 1 --data-path FIXTURES/tasks/data/piqa/valid.jsonl --fewshot-data "
       "FIXTURES/tasks/data/piqa/train.jsonl"},
      {"or a folder with both", "$SHOWN --task piqa --num-fewshot 1 --data-path FIXTURES/tasks/data/piqa/valid.jsonl",
       "$SHOWN --task piqa --num-fewshot 1 --data-path FIXTURES/tasks/data/piqa"},
      {"Try a smaller number", "$SHOWN --task piqa --num-fewshot 999 --data-path FIXTURES/tasks/data/piqa",
       "$SHOWN --task piqa --num-fewshot 1 --data-path FIXTURES/tasks/data/piqa"},
      {"Give a folder with the data of each as --data-path",
       "$SHOWN --task piqa,boolq --data-path FIXTURES/tasks/data --num-fewshot 1 --fewshot-data "
       "FIXTURES/tasks/data/piqa/train.jsonl",
       "$SHOWN --task piqa,boolq --data-path FIXTURES/tasks/data --num-fewshot 1"},
      {"Give each task once, of", "$SHOWN --task piqa,LAMBADA --data-path FIXTURES/tasks/data",
       "$SHOWN --task piqa,boolq --data-path FIXTURES/tasks/data"},
  });
  EXPECT_NE(run_line("$EVAL --task LAMBADA --data-path body.jsonl"), 0);
  EXPECT_THAT(log_, testing::Not(testing::HasSubstr("--json-key")));  // an option that this command lacks
}

TEST_F(RemediesOfFiles, OfFineTuningLeadToARun) {
  std::string race;
  for (int i = 0; i < 6; ++i) {
    race += fmt::format(
        "{{\"article\": \"the {} rows .\", \"questions\": [\"who rows ?\"], \"options\": [[\"a\", \"b\", \"c\", "
        "\"d\"]], \"answers\": [\"{}\"], \"id\": \"{}\"}}\n",
        "abcd"[i % 4], "ABCD"[i % 4], i);
  }
  write("race.jsonl", race);
  write("good.tsv", "sentence\tlabel\nthe ship rows\t1\nthe crew\t0\n");
  write("broken.tsv", "sentence\tlabel\nthe ship rows\t1\nthe crew\t0\nbroken\n");
  write("headless.tsv", "the ship rows\t1\nthe crew\t0\n");
  write("test.tsv", "index\tsentence\n0\tthe ship rows\n");
  write("squad.json",
        "{\"version\": \"1.1\", \"data\": [{\"paragraphs\": [{\"context\": \"the ship rows 7 oars .\", \"qas\": "
        "[{\"id\": "
        "\"1\", \"question\": \"who rows ?\", \"answers\": [{\"answer_start\": 4, \"text\": \"ship\"}]}]}]}]}");
  expect_followed({
      {"Train one: trireme finetune --task RACE --pretrained-checkpoint bert --train-data FILE... --valid-data FILE... "
       "--lr X --save DIR",
       "eval --load bert --task RACE --data-path race.jsonl",
       "finetune --task RACE --pretrained-checkpoint bert --train-data race.jsonl --valid-data race.jsonl --lr 0.01 "
       "--save tuned"},
      {"Give --task RACE", "eval --load tuned --task SST-2 --data-path good.tsv",
       "eval --load tuned --task RACE --data-path race.jsonl"},
      {"give --pretrained-checkpoint, or --load to resume", "$RACE 2", "$RACE 2 --pretrained-checkpoint bert"},
      {"Try the pretrained model that it was made of", "$RACE 2 --pretrained-checkpoint tuned",
       "$RACE 2 --pretrained-checkpoint bert"},
      {"Or measure this one: trireme eval --task RACE --load tuned --data-path FILE",
       "$RACE 2 --pretrained-checkpoint tuned", "eval --task RACE --load tuned --data-path race.jsonl"},
      {"Or continue its run with --load tuned --save tuned",
       "finetune --task RACE --pretrained-checkpoint tuned --train-data race.jsonl --valid-data race.jsonl --lr 0.01",
       "finetune --task RACE --load tuned --save tuned --train-data race.jsonl --valid-data race.jsonl --lr 0.01"},
      {"Try a smaller one", "$RACE 8 --pretrained-checkpoint bert", "$RACE 6 --pretrained-checkpoint bert"},
      {"Give the checkpoint of a BERT", "$SQUAD saved --seq-length 32", "$SQUAD bert --seq-length 32"},
      {"Try a greater --seq-length", "$SQUAD bert --seq-length 6", "$SQUAD bert --seq-length 16"},
      {"or a smaller --max-query-length", "$SQUAD bert --seq-length 6",
       "$SQUAD bert --seq-length 6 --max-query-length 1 --doc-stride 1"},
      {"--on-bad-line skip leaves such lines out", "$SST broken.tsv --valid-data good.tsv",
       "$SST broken.tsv --valid-data good.tsv --on-bad-line skip"},
      {"begin with a header. Put it back", "$SST headless.tsv --valid-data good.tsv", "$SST --valid-data good.tsv"},
      {"Try it as --test-data, with a --predictions-file", "$SST --valid-data test.tsv",
       "$SST --valid-data good.tsv --test-data test.tsv --predictions-file p1.tsv"},
      {"give a --predictions-file", "$SST --valid-data good.tsv --test-data test.tsv",
       "$SST --valid-data good.tsv --test-data test.tsv --predictions-file p2.tsv"},
      {"Try a checkpoint of a pretrained GPT", "generate --load tuned --prompt a", "$GENERATE --prompt a"},
  });
}

TEST_F(RemediesOfFiles, OfGenerationLeadToATextThatContinues) {
  write("prompts.jsonl", "{\"prompt\": \"a\"}\n");
  write("others.jsonl", "{\"prompt\": \"a\", \"id\": \"other\"}\n");
  write("chat.json", "[{\"role\": \"user\", \"content\": \"a\"}]");
  write("template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  std::filesystem::copy(TRIREME_FIXTURES "/tasks/model", "chatty");
  write("chatty/tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"plain\", \"template\": \"{{ messages[0].content }}\"}]}");
  expect_done("checkpoint import --input chatty --output chats");
  expect_done("$GENERATE --prompts prompts.jsonl --output answers.jsonl");
  expect_followed({
      {"or add --resume to continue it", "$GENERATE --prompts prompts.jsonl --output answers.jsonl",
       "$GENERATE --prompts prompts.jsonl --output answers.jsonl --resume"},
      {"resume with the prompts that it was made from",
       "$GENERATE --prompts others.jsonl --output answers.jsonl --resume",
       "$GENERATE --prompts prompts.jsonl --output answers.jsonl --resume"},
      {"--chat and --interactive exclude each other: give one of them", "$GENERATE --prompts prompts.jsonl --prompt a",
       "$GENERATE --prompt a"},
      {"--bf16, --fp16 and --dtype exclude each other: give one of them", "$GENERATE --prompt a --dtype bf16 --fp16",
       "$GENERATE --prompt a --fp16"},
      {"leave out one or the other", "$GENERATE --prompt a --temperature 0 --top-k 4",
       "$GENERATE --prompt a --top-k 4"},
      {"give a file of one by --chat-template", "$GENERATE --chat chat.json",
       "$GENERATE --chat chat.json --chat-template template.jinja"},
      {"choose one by --chat-template: plain", "generate --load chats --max-new-tokens 4 --chat chat.json",
       "generate --load chats --max-new-tokens 4 --chat chat.json --chat-template plain"},
      {"--chat-template needs --chat", "$GENERATE --prompt a --chat-template template.jinja",
       "$GENERATE --chat chat.json --chat-template template.jinja"},
      {"--resume needs --output FILE", "$GENERATE --prompts prompts.jsonl --resume",
       "$GENERATE --prompts prompts.jsonl --resume --output more.jsonl"},
      {"--logprobs needs --output FILE or --output -", "$GENERATE --prompt a --logprobs 1",
       "$GENERATE --prompt a --logprobs 1 --output -"},
      {"holds a BERT, which does not predict the next token. Try a checkpoint of a pretrained GPT",
       "generate --load bert --prompt a", "$GENERATE --prompt a"},
  });
}

TEST_F(RemediesOfFiles, OfOtherCommandsLeadToTheirResults) {
  std::filesystem::create_directory("nothing");
  std::filesystem::create_directory("several");
  for (const char* folder : {"small", "torn"}) std::filesystem::create_directory(folder);
  expect_done("$MORE --metrics-file several/a.jsonl");
  expect_done("$MORE --metrics-file several/b.jsonl");
  for (const char* name : {"config.json", "model.safetensors"}) {
    for (const std::string folder : {"small/", "torn/"}) {
      std::filesystem::copy_file(std::string(TRIREME_FIXTURES "/huggingface/gpt2/") + name, folder + name);
    }
  }
  std::filesystem::copy_file(TRIREME_FIXTURES "/tasks/model/tokenizer.json", "small/tokenizer.json");
  write("torn/tokenizer.json", "{");
  write("class/config.json", "{\"architectures\": [\"FooForCausalLM\"]}");
  expect_followed({
      {"name another --output", "$IMPORT saved --input FIXTURES/huggingface/gpt2",
       "$IMPORT imported --input FIXTURES/huggingface/gpt2"},
      {"it is another model's. Try --no-tokenizer", "checkpoint import --input small --output imported2",
       "$IMPORT imported2 --input small"},
      {"Try --no-tokenizer, which takes ids as they are", "checkpoint import --input torn --output imported4",
       "$IMPORT imported4 --input torn"},
      {"is not supported. Try one of", "$IMPORT imported3 --input class",
       "$IMPORT imported3 --input FIXTURES/huggingface/gpt2"},
      {"--cluster must be given: one of", "$PLAN", "$PLAN --cluster cpu"},
      {"A search also needs a model and --global-batch-size", "plan",
       "plan --cluster cpu --model gpt2-124m --global-batch-size 96"},
      {"for only a schedule give --show-schedule and --micro-batches", "plan",
       "plan --show-schedule --micro-batches 4"},
      {"give one of dgx-2h", "$PLAN --cluster dgx-x", "$PLAN --cluster dgx-h100"},
      {"has no bf16; use fp16", "$PLAN --cluster dgx-2h --dtype bf16", "$PLAN --cluster dgx-2h --dtype fp16"},
      {"choose a divisor or a multiple", "$PLAN --cluster dgx-h100 --nodes 3 --tp 6",
       "$PLAN --cluster dgx-h100 --nodes 3 --tp 4"},
      {"into which the model divides: --tp 4 --pp 1", "$PLAN --cluster dgx-h100 --tp 3 --no-search",
       "$PLAN --cluster dgx-h100 --tp 4 --no-search"},
      {"give --global-batch-size instead", "plan --model gpt2-124m --cluster cpu --micro-batches 4",
       "$PLAN --cluster cpu"},
      {"--top and --no-search exclude each other", "$PLAN --cluster cpu --no-search --top 3",
       "$PLAN --cluster cpu --top 3"},
      {"--distribute-saved-activations needs --tensor-model-parallel-size",
       "$PLAN --cluster dgx-h100 --distribute-saved-activations --recompute-granularity full",
       "$PLAN --cluster dgx-h100 --distribute-saved-activations --recompute-granularity full --tp 2"},
      {"leave out one or the other", "plan --show-schedule --pp 2 --micro-batches 4 --cluster cpu",
       "plan --show-schedule --pp 2 --micro-batches 4"},
      {"give batch sizes, or the number of micro-batches",
       "plan --show-schedule --pp 2 --micro-batches 4 --micro-batch-size 2",
       "plan --show-schedule --pp 2 --micro-batches 4"},
      {"give either --micro-batches", "plan --show-schedule --pp 2", "plan --show-schedule --pp 2 --micro-batches 4"},
      {"or --global-batch-size with --micro-batch-size and --data-parallel-size", "plan --show-schedule --pp 2",
       "plan --show-schedule --pp 2 --global-batch-size 16 --micro-batch-size 2 --data-parallel-size 2"},
      {"choose fewer of them", "plan --show-schedule --pp 99999 --micro-batches 2147483647",
       "plan --show-schedule --pp 4 --micro-batches 8"},
      {"give a run folder, or a file of --metrics-file", "report nowhere --output page.html",
       "report saved --output page.html"},
      {"wait for its first iteration, or give another run folder", "report nothing --output page.html",
       "report saved --output page.html"},
      {"name one, such as several/a.jsonl", "report several --output page.html",
       "report several/a.jsonl --output page.html"},
      {"name another file", "report saved --output saved/step-00000004/manifest.json",
       "report saved --output page.html"},
      {"give each run once", "report saved saved --output page.html", "report saved --output page.html"},
      {"--output must be given, or --follow", "report saved", "report saved --output page.html"},
      {"write or serve", "report saved --output page.html --follow", "report saved --output page.html"},
  });
}

}  // namespace
}  // namespace trireme::app
