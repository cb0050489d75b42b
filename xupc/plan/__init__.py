"""Plans as data: the steps, the recorder that notes them, the patterns that algorithms
use, and their drawing. Ranks, operands and sizes come in. No address and no running job belongs
here."""
