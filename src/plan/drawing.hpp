#pragma once

#include <string>

#include "src/plan/simulation.hpp"

namespace trireme::plan {

/// Draws a simulated schedule as text: one row per rank, time across. A step is a letter, its chunk if there are
/// several, and its micro-batch. F is forward, B backward, I backward of the input, W backward of the weights. Dashes
/// fill its time; dots are idle. Times must be integers.
std::string text_of(const Simulation& simulation, const parallel::Schedule& schedule);

/// Scale of a picture.
struct DrawingScale {
  double pixels = 36;  ///< width of a unit of time
  std::string unit{};  ///< name of a unit of time; empty if none
};

/// The same as an SVG picture, for any times: one bar per step, labelled if there is room, with name, start and end in
/// a tooltip.
std::string svg_of(const Simulation& simulation, const parallel::Schedule& schedule, const DrawingScale& scale = {});

}  // namespace trireme::plan
