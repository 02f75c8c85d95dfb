#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/report/run.hpp"

namespace trireme::report {

/// Reasons why a run's time trained nothing that was kept.
enum class Loss { start_up, loading, saving, evaluation, repeated, rewound, waiting, other };
inline constexpr auto losses = std::to_array<std::string_view>({
    "start-up",
    "loading checkpoints",
    "saving checkpoints",
    "evaluation",
    "iterations repeated",
    "iterations rewound",
    "waiting between attempts",
    "other",
});

/// Time of a run from its first start to its newest sign, in seconds: total_s = trained_s + the sum of lost_s. `other`
/// is the rest: reports, the iterations that a kill cut short, hangs, and causes that older attempts did not record.
struct Goodput {
  double total_s = 0;
  double trained_s = 0;  ///< iterations that were kept
  std::array<double, losses.size()> lost_s{};

  double& lost(Loss loss) { return lost_s[static_cast<std::size_t>(loss)]; }
  double share(double seconds) const { return total_s > 0 ? seconds / total_s : 0; }
};

/// Divides the time of `attempts`, in order of time, whose iterations of `trained_ms` were kept. `repeated_ms` adds to
/// the lost iterations that the attempts recorded. The last attempt ends where it recorded, else at `now`, if given, or
/// at its newest sign.
Goodput goodput_of(const std::vector<Attempt>& attempts, double trained_ms, double repeated_ms,
                   std::optional<std::int64_t> now);

/// Returns "62.3 % of 3 h 20 min; lost: start-up 12 min 5 s, ...", with the losses of at least 0.1 %.
std::string text_of(const Goodput& goodput);

/// Returns the table of a run's time, under a heading; empty if no attempt was recorded.
std::string goodput_section_of(const Run& run);

}  // namespace trireme::report
