// Describes kinds of samples and labels as data, for messages, rates and statements.
#pragma once

#include <cstdint>

namespace io {

struct SampleTraits {
  const char* name;  // in the statement of a snapshot
  const char* noun;  // in messages: "found NOUN in data set X"
  const char* unit;  // what rates count
  // A sample can be prepared and predicted by itself. Otherwise it is a window of a stream.
  bool single;
};

struct LabelTraits {
  const char* labels;  // in messages: "the labels of data set X are LABELS"
  bool classes;        // a prediction is right or wrong
  bool perplexity;     // evaluations report exp(loss)
};

}  // namespace io
