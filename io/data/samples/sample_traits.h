// Describes kinds of samples and labels as data, for messages, rates and checkpoints.
#pragma once

#include <cstdint>

namespace io {

struct SampleTraits {
  const char* name;  // in the description in a checkpoint
  const char* noun;  // in messages: "found NOUN in data set X"
  const char* unit;  // the unit of rates
  // A sample can be prepared and predicted independently. Otherwise it is a window of a stream.
  bool single;
};

struct LabelTraits {
  const char* labels;  // in messages: "the labels of data set X are LABELS"
  bool classes;        // a prediction is correct or wrong
  bool perplexity;     // evaluations report exp(loss)
};

}  // namespace io
