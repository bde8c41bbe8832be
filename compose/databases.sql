-- One database for payments and one for each region's wallet, as they are apart in production too.
CREATE DATABASE payments;
CREATE DATABASE wallet_default;
CREATE DATABASE wallet_eu;
CREATE DATABASE wallet_asia;
