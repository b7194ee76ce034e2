// A sort that keeps the order of what is equal, and bears any answers about the order: what a template compares may
// throw, and numbers that are none have no order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace pinion::jinja {

template <class Item, class Less>
void stable_sort(std::vector<Item>* items, const Less& is_less) {
  if (items->size() < 2) return;
  const auto middle = items->begin() + static_cast<std::ptrdiff_t>(items->size() / 2);
  std::vector<Item> front(items->begin(), middle), back(middle, items->end()), merged;
  stable_sort(&front, is_less);
  stable_sort(&back, is_less);
  std::ranges::merge(front, back, std::back_inserter(merged), is_less);
  *items = std::move(merged);
}

}  // namespace pinion::jinja
