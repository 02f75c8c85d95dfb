#include "src/app/run_config/report_options.hpp"

namespace trireme::app {

void ReportOptions::declare(Options& options) {
  options.add_flag("log-throughput", &throughput,
                   "Log the MFU besides tokens/s and TFLOP/s: the model's FLOPs as a fraction of the device's dense "
                   "16-bit peak.");
  options.add(
      "mfu-peak", &peak_text_, "NAME|TFLOPS",
      "Peak of a rank's device for the MFU: a GPU's name, such as H100, or 10^12 FLOPs per second. Default: by the "
      "GPU's name in bf16 and fp16, else none.");
  options.add_flag(
      "log-progress", &progress,
      "Add a line to progress.txt in the folder of --save at every start and checkpoint: date, SLURM's job, ranks, "
      "iteration, throughput of this job and of all, FLOPs, tokens.");
  options.add("timing-log-level", &timing_level, "0|1|2",
              "Log the time of each part of an iteration over the ranks, on GPUs by stream events. 1: pipeline, "
              "gradient reduction, norms, optimizer; 2: also forward, backward, samples and waits for stages.",
              between(0, 2));
  options.add_choice(
      "timing-log-option", &timing_option,
      {{"max", train::TimingOption::max}, {"minmax", train::TimingOption::minmax}, {"all", train::TimingOption::all}},
      "Ranks that --timing-log-level names, with their hosts: the slowest, also the fastest, or all.");
  options.add_flag("log-straggler", &straggler,
                   "Log the rank and host that the others wait for, and the fraction of time lost: the rank with the "
                   "longest work, which is the iteration less its communication waits, compared with the median.");
  options.add("flight-record", &flight_record, "DIR",
              "Keep the last 250 communications of each rank in a file of DIR, also if it hangs or is killed: trireme "
              "report --flight DIR names the rank that has not called what the others have.");
  options.add("tensorboard-dir", &tensorboard.folder, "DIR",
              "Write event files for TensorBoard, under Megatron-LM's names: losses, learning rate, batch size, loss "
              "scale, gradient norm. A resumed run first removes later points, so that no step occurs twice.");
  options.add("tensorboard-log-interval", &tensorboard.log_interval, "N", "Iterations between points.", at_least(1));
  options.add_flag(
      "log-timers-to-tensorboard", &tensorboard.timers,
      "Add the mean time of an iteration in seconds since the previous point; with --log-throughput the TFLOP/s of a "
      "rank; and the times of --timing-log-level.");
  options.add_flag("log-memory-to-tensorboard", &tensorboard.memory,
                   "Add the bytes allocated on rank 0, current and peak.");
  options.add_flag("log-validation-ppl-to-tensorboard", &tensorboard.perplexity, "Add perplexities of evaluations.");
  options.add_flag("log-world-size-to-tensorboard", &tensorboard.world_size, "Add the number of ranks.");
  options.add_flag("no-log-loss-scale-to-tensorboard", &no_loss_scale_, "Leave out the loss scale.");
  options.add_flag("no-log-learning-rate-to-tensorboard,no-log-learnig-rate-to-tensorboard", &no_learning_rate_,
                   "Leave out the learning rate.");
  options.add_flag("profile", &profile,
                   "GPU: mark forward, backward, optimizer and communication as NVTX ranges, and let a profiler record "
                   "some iterations: nsys profile -t cuda,nvtx --capture-range=cudaProfilerApi.");
  options.add("profile-step-start", &profile_start, "N", "Start recording after iteration N.", at_least(0));
  options.add("profile-step-end", &profile_end, "N", "Stop recording after iteration N.", at_least(1));
  options.add("profile-ranks", &profile_ranks, "RANK", "Ranks to record.");
}

void ReportOptions::settle(int ranks, bool cuda_graphs, Problems& problems) {
  tensorboard.learning_rate = !no_learning_rate_;
  tensorboard.loss_scale = !no_loss_scale_;
  tensorboard.throughput = throughput;
  if (!peak_text_.empty()) problems.attempt([&] { peak = train::parse_peak(peak_text_); });
  problems.expect(
      profile_start < profile_end,
      fmt::format("--profile-step-start {} must be less than --profile-step-end {}", profile_start, profile_end));
  for (const std::int64_t rank : profile_ranks) {
    problems.expect(rank >= 0 && rank < ranks,
                    fmt::format("--profile-ranks {}: the ranks of this job are 0 to {}", rank, ranks - 1));
  }
  problems.exclude(!straggler || !cuda_graphs, "log-straggler", "cuda-graphs", "recorded waits cannot be timed");
}

}  // namespace trireme::app
