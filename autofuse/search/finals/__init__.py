"""The end of a search: finalists built, checked and measured whole, and the choice among them."""
